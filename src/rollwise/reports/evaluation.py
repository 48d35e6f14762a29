"""Write the report of an evaluation: its figures, and the problems with their responses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.records import Row, flatten, typed_command
from rollwise.reports.charts import Chart, chart, described, estimates
from rollwise.reports.page import SHOWN_CHARACTERS, PlainTable, shown, write_page
from rollwise.reports.prompts import MOST_PROMPTS, RESPONSE_BYTES, response
from rollwise.statistics import ProblemResult, steps_of_k
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
) -> Path:
    """Write `report.html` into the folder of an evaluation: one self-contained page.

    `tables` are those of the terminal; responses are shown as text, never as markup. Raises
    `RunError` if it cannot be written.
    """
    rows = dict(summary["benchmarks"])
    if "average" in summary:
        rows["all problems"] = summary["average"]
    ks, baseline = steps_of_k(summary["samples"]), summary.get("baseline", {})
    others = {name: row["figures"] for name, row in baseline.get("benchmarks", {}).items()}
    charts = [
        each
        for at, (name, row) in enumerate(rows.items())
        for each in _charts(at, row, others.get(name, {}), ks)
    ]
    threshold = settings["grading"]["positive_threshold"]
    return write_page(
        path,
        "evaluation.html",
        title=summary["model"],
        data={
            "charts": charts,
            "grids": {"k": {"responses, k": np.log2(ks)}},
            **_problems(answered, threshold),
        },
        scripts=("prompts.js",),
        facts={
            "benchmarks": ", ".join(summary["benchmarks"]),
            "method": f"{summary['samples']} responses to each problem; intervals are 95 %, over "
            "problems",
            "seed": str(settings["seed"]),
            "command": typed_command(),
        },
        rows=rows,
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
            for source, words, style in ((figures, "", ""), (others, ", baseline", "dashed")):
                found = [source.get(f"{of}@{k}") for k in ks]
                if any(found):
                    how = {"colour": colour} | ({"style": style} if style else {})
                    lines.append(estimates(label + words, found, **how))
        yield chart(f"{name}-{place}", lines, "k", **said)


def _problems(answered: Sequence[Answered], threshold: float) -> dict[str, Any]:
    """Gather what the page's script shows: problems, and as many responses as there is room for."""
    kept = answered[:MOST_PROMPTS]
    room = RESPONSE_BYTES // max(1, len(kept))
    prompts = [_problem(each, room, threshold) for each in kept]
    note = f"{len(kept):,} of {len(answered):,} problems are shown."
    return {
        "prompts": prompts,
        "note": note if len(kept) < len(answered) else "",
        "threshold": threshold,
    }


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
        "question": shown(problem.messages[-1]["content"]),
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
