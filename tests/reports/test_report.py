"""The report: one page that needs nothing beside it, and shows what a model wrote as text."""

import base64
import hashlib
import html
import re
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_runs import BALANCED, HOSTILE, LEDGER, evaluated, make_run, read, sample, step_line, visit
from row_files import write_rows

import rollwise
from rollwise.cli import main
from rollwise.config import make_config
from rollwise.errors import RunError
from rollwise.records import RunFolder
from rollwise.records.folder import describe_start
from rollwise.reports import write_report
from rollwise.reports.page import part

UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_it_shows_what_the_run_came_to(run):
    page = read(run)
    text = " ".join(page.text.split())
    assert "3 steps · 144 draws · 1,500 tokens · 3.5 minutes" in text
    assert "6 responses that the grader failed on · 3 lost draws" in text
    assert "0 0.250 [0.150, 0.350]" in text
    assert "3 0.625 [0.525, 0.725]" in text
    assert f"learner.learning_rate {BALANCED.learner.learning_rate}" in text
    assert "model running-sums data running-sums" in text
    assert "exit balanced (positives 2, negatives 2)" in text
    assert "schedule rounds (size 8, rounds 4)" in text
    assert f"versions rollwise {rollwise.__version__}" in text


def test_the_head_says_what_came_of_it_and_when_and_where_it_ran(tmp_path):
    path = make_run(tmp_path / "run")
    folder = RunFolder(path)
    started = describe_start("CPU (2 cores)")
    started |= {"commit": "abc123 + changes"}
    folder.write_config(folder.read_config(), started=started)
    resumed = [{"step": step, "command": f"train {step}", "date": "now"} for step in (3, 5)]
    folder.write_config(folder.read_config(), resumed=resumed)
    text = " ".join(read(write_report(path).parent).text.split())
    assert "run held-out avg@8 0.250 [0.150, 0.350] → 0.625 [0.525, 0.725] · held-out" in text
    assert f"date {started['date']} host {started['host']} device CPU (2 cores)" in text
    assert "commit abc123 + changes" in text
    assert "resumed after step 3 train 3 (now) resumed after step 5 train 5 (now)" in text


def test_it_has_a_chart_of_everything_that_is_asked_after(run):
    charts = read(run).charts
    assert list(charts) == [
        *("heldout", "reward", "zero_variance", "exits", "rounds", "tokens", "entropy"),
        *("pass_rate_by_expected", "seconds"),
    ]
    assert charts["reward"]["lines"][0]["values"] == [0.25, 0.25, 0.25]
    assert charts["exits"]["lines"][1]["values"] == [0.25, 0.25, 0.25]
    accuracy = charts["heldout"]["lines"][0]
    assert (accuracy["label"], accuracy["values"]) == ("avg@8", [0.25, 0.625])
    assert (accuracy["low"], accuracy["high"]) == ([0.15, 0.525], [0.35, 0.725])


def test_every_prompt_has_its_pass_rates_and_beliefs_over_the_run(tmp_path):
    path = make_run(tmp_path / "run")
    folder = RunFolder(path)
    folder.samples.keep([sample(2, 0, "=", question="a?", key="a")])
    for step in (1, 2):
        folder.keep_visit(step, visit(step, "a", correct=step, expected=step / 4), "a?")
    folder.flush_samples()
    folder.keep_visit(3, visit(3, "b", expected=None, strength=None, exit_reason="futile"), "b?")
    folder.flush_samples()
    write_report(path)
    prompts = read(path).prompts
    assert list(prompts) == ["a?", "b?"]
    assert prompts["a?"]["visits"] == {
        "step": [1, 2],
        "correct": [1, 2],
        "drawn": [4, 4],
        "expected": [0.25, 0.5],
        "strength": [6, 6],
        "trained": [2, 2],
        "exit_reason": ["satisfied", "satisfied"],
    }
    assert (prompts["a?"]["visited"], len(prompts["a?"]["responses"])) == (2, 1)
    assert (prompts["a?"]["correct"], prompts["a?"]["drawn"]) == (3, 8)
    assert prompts["b?"]["visits"]["exit_reason"] == ["futile"]
    assert (prompts["b?"]["answer"], prompts["b?"]["responses"]) == (None, [])


def test_the_ledger_is_a_table_that_adds_up(tmp_path):
    path = make_run(tmp_path / "run", more={"ledger": LEDGER})
    write_report(path)
    text = " ".join(read(path).text.split())
    assert "in groups that were trained on 48 32.0 % 480 32.0 %" in text
    assert (
        "surplusafter sampling of their prompt had ended: cancelled or dropped 12 8.0 % 180 12.0 %"
        in text
    )
    assert "all 150 1,500" in text
    assert "9 responses in pools were truncated, with 90 tokens" in text
    assert "pilot" not in text  # there was none
    shares = {each["label"]: each["values"] for each in read(path).charts["ledger"]["lines"]}
    assert shares["zero variance"] == [0.16] * 3


def test_single_responses_that_were_all_trained_on_need_no_table(run):
    text = " ".join(read(run).text.split())
    assert "All 144 draws and 1,500 tokens were trained on: 48 draws and 500 tokens a step" in text
    assert "in groups that were trained on" not in text


def test_every_evaluation_has_a_row_and_a_warning_that_is_over_is_named(tmp_path):
    folder = RunFolder(make_run(tmp_path / "run", steps=0))
    for step in range(1, 41):
        late = {"belief_skill": -0.5 if step < 20 else 0.3, "heldout": evaluated(0.3 + step / 100)}
        folder.log(step_line(step) | late)
    text = " ".join(read(write_report(folder.path).parent).text.split())
    assert all(f" {step} {0.3 + step / 100:.3f} [" in text for step in range(1, 41))
    assert "Warned of earlier, and over: Beliefs are stale (step 10)." in text


def test_it_needs_nothing_beside_it(run):
    page = read(run)
    assert [place for place in page.loads if not place.startswith("#")] == []
    assert not {"link", "iframe", "object", "embed", "base", "img"} & set(page.tags)
    source = (run / "report.html").read_text(encoding="utf-8")
    assert "@import" not in source
    assert "url(" not in source


def test_nothing_runs_but_its_own_script_and_style_by_their_hashes(run):
    source = (run / "report.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', source)
    allowed = dict(each.split(" ", 1) for each in html.unescape(policy).split("; "))
    assert allowed["default-src"] == "'none'" and "connect-src" not in allowed
    for tag in ("script", "style"):
        text = re.findall(f"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert allowed[f"{tag}-src"] == f"'sha256-{digest}'"


def test_the_chart_library_is_the_one_that_was_published():
    """Of the npm package uplot@1.6.32."""
    for name, wanted in UPLOT.items():
        assert hashlib.sha256(part(f"vendor/uplot/{name}").encode()).hexdigest() == wanted


def test_the_page_of_a_long_run_stays_small_and_says_what_was_left_out(tmp_path):
    """5,000 steps of 16 of 4,000 prompts, with four long responses to each of four of them."""
    folder = RunFolder(make_run(tmp_path / "long", steps=1))
    lines = [
        step_line(step) | {"ledger": LEDGER, "belief_skill": 1 / (step + 1), "grad_norm": step**0.5}
        for step in range(2, 5001)
    ]
    for line in lines[::10]:
        line["heldout"] = evaluated(0.5)
    write_rows(folder.path / "metrics.jsonl", [step_line(1), *lines])
    for step in range(1, 5001):
        for place in range(16):
            key = (16 * step + place) % 4000
            row = visit(step, f"prompt {key}", expected=key / 4000, strength=1 + key / 7)
            folder.keep_visit(step, row, f"question {key}, " + "long " * 60)
    for step in range(4000, 5001):
        key = 16 * step % 4000
        folder.samples.keep(
            sample(step, index, f"{step}: " + "so " * 500, f"question {key}", key=f"prompt {key}")
            for index in range(4)
        )
    folder.flush_samples()
    report = write_report(folder.path)
    assert report.stat().st_size < 5_000_000
    page = read(folder.path)
    assert "2,000 of 4,000 prompts are shown" in page.data["note"]
    assert re.search(r"The newest [\d,]+ of 4,004 kept responses", page.data["note"])
    newest = page.data["prompts"][0]
    assert newest["responses"][0]["step"] == 5000
    assert len(newest["visits"]["step"]) == newest["visited"] == 20


def test_a_run_that_was_only_or_never_evaluated_has_a_report(tmp_path):
    page = read(write_report(make_run(tmp_path / "begun", steps=0)).parent)
    assert list(page.charts) == ["heldout"]
    assert "0 steps" in page.text and page.data["prompts"] == []
    folder = RunFolder(tmp_path / "blind")
    folder.create(asdict(make_config({})))
    folder.log(step_line(1) | {"pass_rate_by_expected": []})
    page = read(write_report(folder.path).parent)
    assert "Held-out problems" not in page.text
    assert not {"heldout", "pass_rate_by_expected"} & page.charts.keys()
    assert "reward" in page.charts


def test_what_a_model_wrote_is_text_and_never_markup(tmp_path):
    rows = [
        sample(1, index, text, question=HOSTILE[0], answer=HOSTILE[1])
        for index, text in enumerate(HOSTILE)
    ]
    page = read(write_report(make_run(tmp_path / "<b>run&", samples=rows)).parent)
    assert page.texts == HOSTILE
    assert page.tags.count("script") == 2  # data, and the page's own
    assert not {"img", "b"} & set(page.tags)
    assert page.tags.count("h1") == 1
    (prompt,) = page.data["prompts"]
    assert (prompt["question"], prompt["answer"]) == (HOSTILE[0], HOSTILE[1])
    assert "<b>run&" in page.text
    assert not {"<", ">", "&"} & set(page.scripts[0])


def test_characters_that_hide_or_reorder_text_are_spelt_out_and_long_texts_cut(tmp_path):
    long = "<>" * 500_000
    rows = [
        sample(1, 0, "a\x00\x1b[2J\x7f\x85b\tc\nd", question=long, answer=long),
        sample(1, 1, "1 \u202e2=12\u2066", long),
        sample(1, 2, long, long),
        sample(1, 3, "x" * 4000, long),
    ]
    path = write_report(make_run(tmp_path / "run", samples=rows))
    assert read(path.parent).texts == [
        r"a\u0000\u001b[2J\u007f\u0085b" + "\tc\nd",
        r"1 \u202e2=12\u2066",
        long[:4000] + "… (996,000 more characters)",
        "x" * 4000,
    ]
    assert not {"\x00", "\x1b", "\u202e", "\u2066"} & set(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 1_000_000


def test_correct_is_what_the_settings_call_correct(tmp_path):
    rows = [sample(1, index, "=", reward=reward) for index, reward in enumerate((0.3, 0.6))]
    grading = {"positive_threshold": 0.5}
    path = write_report(make_run(tmp_path / "run", samples=rows, grading=grading))
    page = read(path.parent)
    assert page.data["threshold"] == 0.5
    assert page.data["prompts"][0]["visits"]["correct"] == [1]


@pytest.mark.parametrize("lacking", ["grading", "elapsed", "key"])
def test_records_of_something_else_are_an_error(tmp_path, lacking):
    path = make_run(tmp_path / "run", samples=[sample(1, 0, "=")])
    if lacking == "grading":
        RunFolder(path).write_config({"seed": 0})
    elif lacking == "elapsed":
        (path / "metrics.jsonl").write_text('{"step": 3}\n')
    else:
        other = pa.table({"step": [1], "text": ["other columns"]})
        pq.write_table(other, path / "samples" / "part-00000.parquet")
    with pytest.raises(RunError, match="lack what the report needs"):
        write_report(path)
    assert not (path / "report.html").exists()


def test_the_command_writes_it_and_says_where(run, capsys, tmp_path):
    assert main(["report", str(run)]) == 0
    assert str(run / "report.html") in "".join(capsys.readouterr().out.split())
    marked = make_run(tmp_path / "run[/x]")
    assert main(["report", str(marked)]) == 0
    assert str(marked / "report.html") in "".join(capsys.readouterr().out.split())
    (empty := tmp_path / "empty").mkdir()
    assert main(["report", str(empty)]) == 2
    assert f"rollwise: there is no run in {empty}" in capsys.readouterr().err
