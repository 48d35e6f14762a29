"""The report of an evaluation: its figures, the baseline beside them, problems and responses."""

from dataclasses import asdict

import numpy as np
from made_runs import HOSTILE, read

from rollwise.commands.show import evaluation_tables
from rollwise.config import EvaluateConfig, make_settings
from rollwise.reports import write_evaluation_report
from rollwise.reports.evaluation import Answered
from rollwise.statistics import ProblemResult
from rollwise.tasks import Problem


def evaluation(path, responses, baseline=None, answers=None, benchmark="math500"):
    """Write the report of four responses to one problem: each a text, its reward, whether cut."""
    around = {"value": 0.5, "low": 0.4, "high": 0.6125}
    counts = {"problems": 1, "tokens": 12.0, "truncated": 0.25, "grader_failures": 0}
    row = {f"{kind}@{k}": around for kind in ("avg", "pass", "maj") for k in (1, 2, 4)}
    benchmarks = {benchmark: row | {"lost_draws": 1} | counts}
    summary = {"model": "m", "samples": 4, "benchmarks": benchmarks}
    if baseline is not None:
        compared = {"problems": 1, "more_often": 1, "less_often": 0}
        compared |= {"avg": around, "pass@4": around, "figures": row}
        summary["baseline"] = {"folder": "before", "benchmarks": {benchmark: compared}}
    rows = [
        {"index": at, "response": text, "reward": reward, "tokens": 3, "truncated": cut}
        for at, (text, reward, cut) in enumerate(responses)
    ]
    problem = Problem("k", ({"role": "user", "content": HOSTILE[0]},), HOSTILE[1], level=2)
    result = ProblemResult("k", np.array([row["reward"] > 0 for row in rows]), answers)
    settings = asdict(make_settings(EvaluateConfig, {}))
    tables = list(evaluation_tables(summary))
    answered = [Answered(benchmark, problem, rows, result, baseline)]
    started = {"date": "2026-01-02", "device": "CPU (2 cores)"}
    return write_evaluation_report(path, summary, settings, tables, answered, started)


FOUR = [("a", 1.0, False), ("b", 0.0, True), ("c", 0.0, False), ("d", 1.0, False)]


def test_an_evaluation_is_shown_on_one_scale_with_its_problems_and_the_baseline(tmp_path):
    evaluation(tmp_path, FOUR, baseline=0.25, answers=["12", "7", "", "12"])
    page = read(tmp_path)
    text = " ".join(page.text.split())
    assert "0.500 [0.400, 0.613]" in text and "+0.500 [+0.400, +0.613]" in text
    assert "50.0" not in text.partition("Settings")[0]
    assert "more often" in text and "better" not in text
    assert "1 lost draw · 0 responses that" in text
    assert "date 2026-01-02 device CPU (2 cores)" in text
    assert "(0.3, 0.4] 0 (0.4, 0.5] 1 (0.5, 0.6] 0" in text  # the pass rate of the one problem
    solved = page.charts["solved-0"]
    assert [(each["label"], each.get("style")) for each in solved["lines"][:2]] == [
        ("at least one correct (pass@k)", None),
        ("at least one correct (pass@k), baseline", "dashed"),
    ]
    (problem,) = page.data["prompts"]
    assert (problem["correct"], problem["drawn"], problem["baseline"]) == (2, 4, 0.25)
    assert problem["counts"] == {"incorrect": 2, "truncated": 1, "unanswered": 1}
    rows = {row[0]: row for row in problem["responses"][0]["rows"]}
    assert rows[1] == [1, 0, None, 3, True, "b", 0, "7"]
    assert rows[2][-1] == ""
    assert problem["about"] == ["math500", "level 2"]


def test_problems_of_an_evaluation_have_as_many_responses_as_there_is_room_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("rollwise.reports.evaluation.RESPONSE_BYTES", 1000)
    evaluation(tmp_path, [("x" * 900, 1.0, False)] + [("y" * 900, 0.0, False)] * 3)
    (problem,) = read(tmp_path).data["prompts"]
    (visit,) = problem["responses"]
    assert [row[5] for row in visit["rows"]] == ["y" * 900]
    assert visit["note"] == "1 of 4 responses are shown, incorrect ones first."
    assert problem["counts"] == {"incorrect": 3, "truncated": 0, "unanswered": None}
