"""Write the report of a training run."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from rollwise.errors import RunError, one_line
from rollwise.records import Row, RunFolder, flatten
from rollwise.reports.charts import RunCharts
from rollwise.reports.facts import method, with_numbers
from rollwise.reports.findings import FEWEST_STEPS, findings, passed
from rollwise.reports.page import write_page
from rollwise.reports.prompts import prompt_data

SHARE = 0.02
"""The largest share of its time that a run in progress spends on reports."""

SHOWN = ("rollwise", "torch", "transformers")
"""The packages whose versions are shown; all are in `config.json`."""

UNFIT = (KeyError, TypeError, ValueError, AttributeError, jinja2.UndefinedError)
"""What is raised where the records of a run lack what its report needs."""

log = logging.getLogger(__name__)


def write_report(path: Path, under_way: bool = False, reload: float | None = None) -> Path:
    """Write `report.html` into a run's folder: one self-contained page.

    Responses are shown as text, never as markup. The report of an unfinished run covers the steps
    so far; `reload` is the number of seconds after which the page reloads. A `RunError` says that
    there is no run, that its records lack what the report needs, or that the report cannot be
    written.
    """
    try:
        folder = RunFolder(path)
        config = folder.read_config()
        lines = folder.read_metrics()
        charts = RunCharts(lines)
        data, versions = config["data"], folder.read_about("versions")
        heldout = data.get("heldout")
        return write_page(
            path,
            "run.html",
            data={
                "charts": charts.charts,
                "grids": charts.grids,
                "exit": with_numbers(config["exit"]),
                "kept": config["records"]["prompts_per_step"],
                "reload": reload,
                **prompt_data(folder, config["grading"]["positive_threshold"]),
            },
            scripts=("prompts.js", *(["reload.js"] if reload else [])),
            facts={
                **folder.read_about("started"),
                **{
                    f"resumed after step {each['step']}": f"{each['command']} ({each['date']})"
                    for each in folder.read_about("resumed")
                },
                "model": config["model"]["path"],
                "data": f"{data['train']}, held out: {heldout}" if heldout else data["train"],
                "method": method(config),
                "seed": str(config["seed"]),
                "versions": ", ".join(f"{n} {versions[n]}" for n in SHOWN if n in versions),
            },
            written=datetime.now().astimezone().isoformat(" ", "seconds"),
            under_way=under_way,
            reload=reload,
            has_ended=folder.read_summary() is not None,
            remarks=charts.remarks,
            findings=(current := findings(lines, config)),
            passed=passed(lines, config, current),
            chart_ids={chart["id"] for chart in charts.charts},
            fewest_steps=FEWEST_STEPS,
            ledger=_ledger(lines),
            evaluated=_evaluated(lines),
            totals=_totals(lines),
            settings=flatten(config, "."),
        )
    except UNFIT as error:
        raise RunError(
            f"{path}: config.json, metrics.jsonl, samples or visits lack what the "
            f"report needs ({one_line(error)}); they may be of another command or release"
        ) from error


class LiveReport(AbstractContextManager["LiveReport"]):
    """Writes the report of a run in progress, at least `every` seconds apart.

    If an error ends its block, a report that said that the run is in progress no longer says so.
    """

    def __init__(
        self, path: Path, every: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._every, self._clock = path, every, clock
        self._due = -math.inf

    def step_ended(self) -> None:
        """Write the report if it is due."""
        began = self._clock()
        if began >= self._due:
            self._write(under_way=True, reload=self._every)
            ended = self._clock()
            self._due = ended + max(self._every, (ended - began) / SHARE)

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None and self._due > -math.inf:
            self._write()

    def _write(self, **how: Any) -> None:
        try:
            write_report(self._path, **how)
        except RunError as error:  # which does not end the run
            log.warning("the report is not up to date: %s", error)


def _evaluated(lines: Sequence[Row]) -> list[Row]:
    """Return the lines of the evaluations; if there are more than two, one is marked as `best`."""
    found = [line for line in lines if "heldout" in line]
    if not found:
        return []
    name = next(iter(found[0]["heldout"]))
    best = max(range(len(found)), key=lambda at: found[at]["heldout"][name]["value"])
    return [line | {"best": at == best and len(found) > 2} for at, line in enumerate(found)]


def _ledger(lines: Sequence[Row]) -> dict[str, Counter[str]]:
    """Add up the ledgers of a run's steps: draws, tokens and truncated responses by their place."""
    sums: dict[str, Counter[str]] = {kind: Counter() for kind in ("draws", "tokens", "truncated")}
    for line in lines:
        for kind, counts in sums.items():
            counts.update(line.get("ledger", {}).get(kind, {}))
    return sums


def _totals(lines: Sequence[Row]) -> Row:
    names = ("draws", "tokens", "grader_failures", "lost_draws")
    return {
        "steps": lines[-1]["step"],
        "seconds": lines[-1]["elapsed"],
        **{name: sum(line.get(name, 0) for line in lines) for name in names},
    }
