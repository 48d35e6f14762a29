"""`rollwise prepare`: what is left out, what is measured, what is chosen, and how it resumes."""

import dataclasses

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import TINY, summary_of
from row_files import write_rows
from scipy import stats

from rollwise.config import PrepareConfig, make_settings
from rollwise.config.drawing import pass_rate_range
from rollwise.errors import ConfigError
from rollwise.statistics import histogram
from rollwise.tasks import read_problems
from rollwise.training.build import LocalBackend

QUESTION = "A train travels 120 miles in 2 hours. What is its average speed in miles per hour?"


def prepared(folder):
    return pq.read_table(folder / "prepared.parquet").to_pylist()


def test_what_is_in_the_folder_and_pass_rates_are_those_of_the_responses(whole):
    files = {str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()}
    assert files == {
        *("config.json", "summary.json", "checksums.txt", "README.md"),
        *("problems.parquet", "prepared.parquet"),
        *(f"responses/part-0000{i}.parquet" for i in range(3)),
    }
    rewards = {}
    for row in pq.read_table(whole / "responses").to_pylist():
        rewards.setdefault(row["key"], []).append(row["reward"])
    rows = prepared(whole)
    assert len(rows) == 12
    for row in rows:
        exact = stats.binomtest(int(sum(rewards[row["key"]])), 4).proportion_ci(method="exact")
        assert row["drawn"] == 4
        assert row["pass_rate"] == np.mean(rewards[row["key"]])
        assert row["pass_rate_low"] == pytest.approx(exact.low)
        assert row["pass_rate_high"] == pytest.approx(exact.high)


def test_what_is_written_is_what_trainers_read(whole):
    """verl's columns; the same problems for `rollwise train`; and `datasets` finds the one file."""
    first = prepared(whole)[0]
    assert {"data_source", "prompt", "ability", "reward_model", "extra_info"} <= first.keys()
    assert first["prompt"][0].keys() == {"role", "content"}
    assert first["reward_model"].keys() == {"ground_truth", "style"}
    problems = read_problems(whole / "prepared.parquet").problems
    measured = [(row["pass_rate"] * row["drawn"], row["drawn"]) for row in prepared(whole)]
    assert [problem.measured for problem in problems] == measured
    unmeasured = [dataclasses.replace(problem, measured=(0.0, 0.0)) for problem in problems]
    assert unmeasured == read_problems(whole / "problems.parquet").problems
    loaded = datasets.load_dataset(str(whole), split="train")
    assert loaded["key"] == [problem.key for problem in problems]


def test_another_range_draws_nothing_again(tmp_path, say, monkeypatch):
    folder = tmp_path / "run"
    say("prepare", folder, *TINY)
    rows = {row["key"]: row for row in prepared(folder)}
    monkeypatch.setattr("rollwise.models.saved.load_model", None)
    say("prepare", folder, "--resume", "--selection.range", "[0, 0.25)")
    assert {row["key"] for row in prepared(folder)} == {
        key for key, row in rows.items() if row["pass_rate"] < 0.25
    }
    card = folder / "README.md"
    written = card.read_text()
    card.write_text(written + "Our notes.\n")
    again = "prepare", folder, "--resume", "--selection.range", "[0.001, 0.002]"
    assert "README.md was modified after the command ended" in say(*again, code=2)
    assert "Our notes." in card.read_text()
    card.write_text(written)
    shown = say(*again, code=2)
    assert "no problem has a pass rate within `selection.range` = '[0.001, 0.002]'" in shown
    assert not (folder / "prepared.parquet").exists()
    assert "| pass rate out of range | 12 | 0 |" in (folder / "README.md").read_text()


# What is left out.


def test_every_stage_is_counted(tmp_path, reader, speak, say):
    """Known problems: each reason once or more, and the pass rates 0, ¼, ½ and 1."""
    kept = [
        {"problem": QUESTION, "answer": "60", "solution": r"So \boxed{60}."},
        {"problem": "What is one half of one?", "answer": r"\frac{1}{2}", "level": "Level 2"},
        {"problem": "What is the root of sixteen?", "answer": "4"},
        {"problem": "Which number is the loneliest?", "answer": "1"},
    ]
    unusable = [
        {"problem": QUESTION, "answer": "61"},
        {"problem": QUESTION.lower(), "answer": "60"},
        {"problem": "No answer?", "answer": ""},
        {"problem": " ", "answer": "3"},
        {"problem": "What do two and two make?", "answer": "4", "solution": r"\boxed{5}"},
        {"problem": "long " * 500, "answer": "3"},
    ]
    first = write_rows(tmp_path / "first.jsonl", kept + unusable)
    lost = {"problem": "Lost?", "answer": "0"}
    second = write_rows(tmp_path / "second.jsonl", [kept[2], lost])
    keys = {p.messages[0]["content"]: p.key for p in read_problems(second).problems}
    keys |= {p.messages[0]["content"]: p.key for p in read_problems(first).problems}
    correct = {
        keys[row["problem"]]: [rf"\boxed{{{row['answer']}}}"] * n + [r"\boxed{-7}"] * (4 - n)
        for row, n in zip(kept, (0, 1, 2, 4), strict=True)
    }
    speak(correct | {keys["Lost?"]: [None]})
    options = ["--data.sources", first, "--data.sources", second, "--model.path", reader]
    options += ["--samples", 4, "--selection.range", "hard", "--engine.max_new_tokens", 8]
    options += ["--grading.workers", 1, "--selection.range", "(0, 0.5]"]
    say("prepare", tmp_path / "run", *options)
    found = summary_of(tmp_path / "run")
    counts = {
        "read": 12,
        "empty_problems": 1,
        "missing_answers": 1,
        "duplicates": 2,
        "conflicting_answers": 1,
        "near_duplicates": 1,
        "checked_solutions": 2,
        "refuted_solutions": 1,
        "too_long": 1,
        "undrawn": 1,
        "out_of_range": 2,
        "chosen": 2,
    }
    assert {name: found[name] for name in counts} == counts
    assert found["pass_rate"]["value"] == pytest.approx((0 + 0.25 + 0.5 + 1) / 4)
    assert found["lost_draws"] == 4
    rows = prepared(tmp_path / "run")
    chosen = [(row["pass_rate"], row["drawn"], row["level"]) for row in rows]
    assert chosen == [(0.25, 4, 2), (0.5, 4, None)]
    assert {row["data_source"] for row in rows} == {"first"}
    card = (tmp_path / "run/README.md").read_text()
    assert "2 problems of" in card and "| read | | 12 |" in card
    assert "| pass rate out of range | 2 | 2 |" in card


def test_without_samples_problems_are_cleaned_and_no_model_is_loaded(tmp_path, say, monkeypatch):
    monkeypatch.setattr(LocalBackend, "untrained", None)
    rows = [
        {"problem": QUESTION, "solution": rf"\boxed{{{n}}}", "level": "Level 3"} for n in (60, 61)
    ]
    file = write_rows(
        tmp_path / "math.jsonl", [*rows, {"problem": QUESTION.lower(), "solution": ""}]
    )
    options = ["--data.sources", file, "--samples", 0, "--data.instruction", "Think."]
    shown = say("prepare", tmp_path / "run", *options)
    assert r"columns: problem -> problem, solution (in \boxed{}) -> answer" in shown
    [problem] = read_problems(tmp_path / "run/prepared.parquet").problems
    assert (problem.question, problem.answer, problem.level) == (f"{QUESTION}\n\nThink.", "60", 3)
    assert problem.solution == r"\boxed{60}" and problem.measured == (0.0, 0.0)
    assert "pass_rate" not in prepared(tmp_path / "run")[0]
    assert "pass rate" not in (tmp_path / "run/README.md").read_text().lower()
    say("prepare", tmp_path / "run", *options)
    shown = say("prepare", tmp_path / "x", *options, "--selection.range", "easy", code=2)
    assert "`selection.range` chooses by pass rates, which `samples = 0` has none of" in shown


def test_solutions_that_the_grader_cannot_follow_are_an_error(tmp_path, say):
    file = write_rows(tmp_path / "s.jsonl", [{"problem": "1+1?", "answer": "2", "solution": "two"}])
    options = ["--data.sources", file, "--grading.type", "exact"]
    shown = say("prepare", tmp_path / "run", *options, code=2)
    assert "no reference solution is correct by the grader `exact`" in shown
    options += ["--selection.check_solutions", "false", "--samples", "1"]
    say("prepare", tmp_path / "run", *options)


def test_hostile_names_and_problems_do_no_harm_in_the_card(tmp_path, speak, say):
    evil = "<script>alert(1)</script>`|[x](javascript:1)\x1b[31m\u202e"
    rows = [
        {"problem": f"{i}+1? {evil}", "answer": str(i + 1), "subject": evil, "level": evil}
        | {"data_source": evil}
        for i in range(2)
    ]
    file = write_rows(tmp_path / "a<b>|[red].jsonl", rows)
    speak(lambda key: [f"{evil}=1", f"{evil}=2"])
    options = ["--data.sources", file, "--samples", "2", "--grading.type", "exact"]
    shown = say("prepare", tmp_path / "run", *options)
    card = (tmp_path / "run/README.md").read_text()
    assert "script" not in card and "javascript" not in card
    assert "`" + str(file) + "`" in card  # as code, so that its <b> is text
    assert "\x1b" not in card + shown and "\u202e" not in card + shown
    assert read_problems(tmp_path / "run/prepared.parquet").problems[0].source == evil


# The parts.


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("all", [0, 0.125, 0.25, 0.3125, 0.5, 1]),
        ("easy", [0.125, 0.25, 0.3125]),
        ("hard", [0.125]),
        ("[0, 0.5)", [0, 0.125, 0.25, 0.3125]),
        (" ( .25 , 1 ] ", [0.3125, 0.5, 1]),
        *((text, None) for text in ("", "half", "(0, 2)", "[0.5, 0.1]", "0, 1", "(0, 1..2)")),
    ],
)
def test_ranges(text, within):
    """Of 16 responses, 5 correct ones (0.3125) are within 0.313: so the paper rounds."""
    given = {"selection": {"range": text}}
    if within is None:
        with pytest.raises(ConfigError, match=r"`selection`: `range` must be all, easy, hard, or"):
            make_settings(PrepareConfig, given)
        return
    rates = np.array([0, 0.125, 0.25, 0.3125, 0.5, 1, np.nan])
    low, high = pass_rate_range(make_settings(PrepareConfig, given).selection.range)
    assert rates[(low <= rates) & (rates <= high)].tolist() == within


def test_the_histogram_has_every_rate_once():
    rates = np.array([0, 0, 0.1, 0.3, 0.30001, 0.95, 1])
    found = histogram(rates)
    assert found["0"] == 2 and found["1"] == 1
    assert (found["(0, 0.1]"], found["(0.2, 0.3]"], found["(0.3, 0.4]"]) == (1, 1, 1)
    assert found["(0.9, 1)"] == 1
    assert sum(histogram(np.arange(17) / 16).values()) == 17
