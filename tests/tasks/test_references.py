"""Reference answers are looked at before a run."""

import json

import pytest

from rollwise.answers import why_unreadable
from rollwise.cli import main
from rollwise.errors import DataError
from rollwise.grading.settings import ExactSettings, MathSettings
from rollwise.tasks import Problem, check_references

PROOF = "Let G be a group of order p. Then every element but one has order p, so that it is cyclic."


@pytest.mark.parametrize(
    "answer",
    [
        "3+4=<<3+4=7>>7.\n#### 7",  # GSM8K
        r"\frac{3}{4}",  # MATH
        r"We get $$v = \boxed{2.75e11} \mathrm{~cm/s}$$.",  # Minerva
        r"['$\\frac{1}{2}, 3$']",  # OlympiadBench
        "033",  # AIME
        "142.0",  # AMC
        r"\text{A}",  # NuminaMath
        r"x \equiv 3 \pmod{7}",
        "(B) 5",
        "no real solutions",
        r"\int_0^1 f(x)\,dx",
        "2 and 3",
    ],
)
def test_references_of_public_data_sets_can_be_read(answer):
    assert why_unreadable(answer) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (" ", "it is empty"),
        (PROOF, "it is a text, not an answer"),
        (r"\frac{1}{2", "it cannot be put into a box"),
        ("x" * 1001, "it cannot be put into a box"),
        ("(1, 2", "it cannot be read: brackets are not balanced"),
    ],
)
def test_why_a_reference_cannot_be_graded_by(answer, why):
    assert why_unreadable(answer) == why


def asked(*answers):
    return [Problem.ask(f"question {i}", answer) for i, answer in enumerate(answers)]


def test_a_few_are_logged_and_many_refused(caplog):
    check_references(asked(*["5"] * 19, PROOF), MathSettings(), "some")
    assert "some: 1 of 20 reference answers cannot be graded ('Let G be" in caplog.text
    with pytest.raises(DataError, match=r"2 of 20 .*not an answer.*`data.answer_column`"):
        check_references(asked(*["5"] * 18, PROOF, PROOF), MathSettings(), "some")


def test_graders_that_read_no_references_refuse_none(caplog):
    check_references(asked(PROOF, ""), ExactSettings(), "some")
    assert not caplog.text


@pytest.mark.parametrize("command", ["train", "doctor"])
def test_commands_refuse_data_before_the_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"question {i}", "answer": f"{PROOF} {i}"} for i in range(50)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.toml").write_text('data.train = "data.jsonl"\ngrading.type = "math"\n')
    code = main([command, "run.toml"])
    shown = "".join(capsys.readouterr())
    assert code
    assert "50 of 50" in " ".join(shown.split())
