"""Write the report of an evaluation: its figures, and the problems with their responses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.records import Row, flatten
from rollwise.reports.charts import Chart, chart, described, estimates
from rollwise.reports.page import SHOWN_CHARACTERS, PlainTable, shown, write_page
from rollwise.reports.prompts import MOST_PROMPTS, RESPONSE_BYTES, response
from rollwise.statistics import ProblemResult, histogram, steps_of_k
from rollwise.tasks import Problem

FEWEST_CHARACTERS = 200
"""The fewest characters shown of a problem's first response, and the most of an answer."""


@dataclass(frozen=True)
class Answered:
    """A problem of an evaluation, its responses as they are recorded, and how they were graded.

    `baseline` is the pass rate of the baseline's model; None if it was not asked.
    """

    benchmark: str
    problem: Problem
    rows: Sequence[Row]
    result: ProblemResult
    baseline: float | None


def write_evaluation_report(
    path: Path,
    summary: Mapping[str, Any],
    settings: Mapping[str, Any],
    tables: Sequence[PlainTable],
    answered: Sequence[Answered],
    started: Mapping[str, str] | None = None,
) -> Path:
    """Write `report.html` into the folder of an evaluation: one self-contained page.

    `tables` are those of the terminal; `started` says when, where and by which command, if that is
    known. Responses are shown as text, never as markup. Raises `RunError` if it cannot be written.
    """
    rows = dict(summary["benchmarks"])
    if "average" in summary:
        rows["all problems"] = summary["average"]
    ks, baseline = steps_of_k(summary["samples"]), summary.get("baseline", {})
    others = baseline.get("benchmarks", {})
    charts = [
        each
        for at, (name, row) in enumerate(rows.items())
        for each in _charts(at, row, others[name]["figures"] if name in others else {}, ks)
    ]
    rates: dict[str, list[float]] = {}
    for each in answered:
        rates.setdefault(each.benchmark, []).append(each.result.pass_rate)
    kept = answered[:MOST_PROMPTS]
    room, threshold = RESPONSE_BYTES // max(1, len(kept)), settings["grading"]["positive_threshold"]
    note = f"{len(kept):,} of {len(answered):,} problems are shown."
    return write_page(
        path,
        "evaluation.html",
        title=summary["model"],
        data={
            "charts": charts,
            "grids": {"k": {"responses, k": np.log2(ks)}},
            "prompts": [_problem(each, room, threshold) for each in kept],
            "note": note if len(kept) < len(answered) else "",
            "threshold": threshold,
        },
        scripts=("prompts.js",),
        facts={
            **(started or {}),
            "benchmarks": ", ".join(summary["benchmarks"]),
            "method": f"{summary['samples']} responses to each problem; intervals are 95 %, over "
            "problems",
            "seed": str(settings["seed"]),
        },
        rows=rows,
        histograms={name: histogram(np.array(found)) for name, found in rates.items()},
        baseline=baseline,
        tables=tables,
        settings=flatten(settings, "."),
    )


def _charts(
    place: int, figures: Mapping[str, Any], others: Mapping[str, Any], ks: Sequence[int]
) -> Iterator[Chart]:
    for name, said in described("evaluation").items():
        lines = []
        for colour, (of, label) in enumerate(said["figures"].items()):
            for source, words, style in ((figures, "", None), (others, ", baseline", "dashed")):
                found = [source.get(f"{of}@{k}") for k in ks]
                if any(found):
                    lines.append(estimates(label + words, found, colour=colour, style=style))
        yield chart(f"{name}-{place}", lines, "k", **said)


def _problem(asked: Answered, room: int, threshold: float) -> Row:
    problem, result, answers = asked.problem, asked.result, asked.result.answers
    level = "" if problem.level is None else f"level {problem.level}"
    rows: list[list[Any]] = []
    pairs = zip(asked.rows, answers or repeat(None), strict=False)
    for row, answer in sorted(pairs, key=lambda pair: pair[0]["reward"] > threshold):
        text = shown(row["response"], max(FEWEST_CHARACTERS, min(room, SHOWN_CHARACTERS)))
        room -= len(text)
        if room < 0 and rows:
            break
        read = None if answer is None else shown(answer, FEWEST_CHARACTERS)
        rows.append([*response(row, text), read])
    few = f"{len(rows)} of {result.drawn} responses are shown, incorrect ones first."
    return {
        "key": problem.key,
        "question": shown(problem.question),
        "answer": shown(problem.answer),
        "benchmark": shown(asked.benchmark),
        "about": [shown(each) for each in (asked.benchmark, problem.subject, level) if each],
        "baseline": asked.baseline,
        "correct": int(result.correct.sum()),
        "drawn": result.drawn,
        "counts": {
            "incorrect": int((~result.correct).sum()),
            "truncated": sum(bool(row["truncated"]) for row in asked.rows),
            "unanswered": None if answers is None else sum(not answer for answer in answers),
        },
        "responses": [{"rows": rows, "note": few if len(rows) < result.drawn else ""}],
    }
