"""The charts of a run, by what its metrics have."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rollwise.records import Row
from rollwise.reports.charts import (
    SMOOTHED,
    Chart,
    Floats,
    chart,
    described,
    estimates,
    line,
    moving_mean,
)

BINS = 10
"""Bins of what was believed, in charts of pass rates against it."""

OF_GROUPS = ("zero_variance", "exits", "draws", "rounds")
"""Charts that say nothing of single responses."""


class RunCharts:
    """The charts for which the metrics of a run have figures.

    `grids` are what they are drawn over, name -> axes; `remarks` say how figures are drawn.
    """

    def __init__(self, lines: Sequence[Row]) -> None:
        self.steps = [row for row in lines if row["step"] > 0]
        self.charts: list[Chart] = []
        self.grids: dict[str, dict[str, Any]] = {}
        self.remarks: list[str] = []
        count = len(self.steps)
        self.smoothed = min(count, max(SMOOTHED, count // 100))
        costs = _costs(lines)
        self._add_evaluations(lines, costs)
        if not self.steps:
            return
        self.grids["steps"] = {name: cost[-count:] for name, cost in costs.items()}
        if count > 2:
            self.remarks.append(
                f"Thick lines are means of {self.smoothed} steps, thin ones single steps."
            )
        single = all(row["draws"] <= row["prompts"] for row in self.steps)
        for name, said in described().items():
            if not (single and name in OF_GROUPS):
                made = MAKERS.get(name, _of_parts if "parts" in said else _of_figures)(self, name)
                self.charts += [] if made is None else [made]

    def values(self, name: str) -> Floats:
        """Return a figure of each step, shape (S,); NaN where a step has none."""
        return np.array([row.get(name) for row in self.steps], dtype=float)

    def known(self, name: str) -> bool:
        """Whether any step has a figure."""
        return any(row.get(name) is not None for row in self.steps)

    def figure(self, label: str, values_S: Floats, colour: int = 0) -> list[dict[str, Any]]:
        """Draw a figure of each step faintly, and its moving mean."""
        plain = line(label, values_S, style="points", colour=colour)
        if len(values_S) < 3:
            return [plain]
        smooth = moving_mean(values_S, self.smoothed)
        name = f"{label}, mean of {self.smoothed} steps"
        own = {"label": "of the step", "style": "faint", "group": name}
        return [plain | own, line(name, smooth, colour=colour)]

    def _add_evaluations(self, lines: Sequence[Row], costs: Mapping[str, Any]) -> None:
        places = [place for place, row in enumerate(lines) if "heldout" in row]
        if not places:
            return
        self.grids["evaluations"] = {name: cost[places] for name, cost in costs.items()}
        figures = [lines[place]["heldout"] for place in places]
        drawn = [estimates(name, [each[name] for each in figures]) for name in figures[0]]
        self.charts.append(chart("heldout", drawn, "evaluations"))
        self.remarks.append("Bands are 95 % intervals over problems.")


def _costs(lines: Sequence[Row]) -> dict[str, Any]:
    return {
        "steps": np.array([row["step"] for row in lines]),
        "draws": np.cumsum([int(row.get("draws", 0)) for row in lines]),
        "tokens": np.cumsum([int(row.get("tokens", 0)) for row in lines]),
        "minutes": np.array([row["elapsed"] / 60 for row in lines]),
    }


def _of_figures(run: RunCharts, name: str) -> Chart | None:
    figures = described()[name].get("figures", {})
    known = [(figure, label) for figure, label in figures.items() if run.known(figure)]
    lines = [
        part
        for colour, (figure, label) in enumerate(known)
        for part in run.figure(label, run.values(figure), colour)
    ]
    return chart(name, lines) if lines else None


def _of_parts(run: RunCharts, name: str) -> Chart | None:
    """Draw what steps consist of: in shares where that is the unit; None where all is one part."""
    said = described()[name]
    steps = [_parts_of(row, said["parts"]) for row in run.steps]
    found = dict.fromkeys(part for step in steps for part in step)
    colours = said.get("colours") or {part: at for at, part in enumerate(found)}
    parts = np.array([[max(0, step.get(part, 0)) for step in steps] for part in colours], float)
    if said.get("unit") == "share":
        parts /= np.maximum(parts.sum(axis=0), 1)
    lines = [
        line(part.replace("_", " "), values, colour=colours[part])
        for part, values in zip(colours, parts, strict=True)
        if values.any() or not said.get("sparse")
    ]
    return chart(name, lines) if len(lines) > 1 else None


def _parts_of(row: Row, path: str) -> Mapping[str, float]:
    found: Any = row
    for name in path.split("."):
        found = found[name]
    return found if isinstance(found, dict) else {f"round {r}": n for r, n in enumerate(found, 1)}


def _draws(run: RunCharts, name: str) -> Chart | None:
    if any(len(row["draws_by_round"]) > 1 for row in run.steps):
        return None
    surplus = [row["surplus_draws"] / max(row["prompts"], 1) for row in run.steps]
    lines = run.figure("all", run.values("draws_per_prompt"))
    return chart(name, lines + run.figure("surplus", np.array(surplus), colour=1))


def _competence(run: RunCharts, name: str) -> Chart | None:
    if not run.known("competence"):
        return None
    low, middle, high = (run.values(f"difficulty_p{q}") for q in (10, 50, 90))
    lines = [
        line("difficulty: median, 10 to 90 %", middle, low=low, high=high, colour=1),
        line("competence", run.values("competence"), colour=0),
    ]
    return chart(name, lines)


def _calibration(run: RunCharts, name: str) -> Chart | None:
    """Pass rates against what was believed: of the first, middle and last third of the steps."""
    thirds = [third for third in np.array_split(np.arange(len(run.steps)), 3) if len(third)]
    pairs = [
        np.array(
            [pair for at in third for pair in run.steps[at].get(name) or ()], dtype=float
        ).reshape(-1, 2)
        for third in thirds
    ]
    if not any(map(len, pairs)):
        return None
    ends = np.linspace(0.0, 1.0, BINS + 1)
    middles = (ends[:-1] + ends[1:]) / 2
    run.grids[name] = {described()[name]["xlabel"]: middles}
    lines = [line("as expected", middles, style="dashed", colour=7)]
    for colour, (third, part) in enumerate(zip(thirds, pairs, strict=True)):
        first, last = run.steps[third[0]]["step"], run.steps[third[-1]]["step"]
        counts, _ = np.histogram(part[:, 0], ends)
        sums, _ = np.histogram(part[:, 0], ends, weights=part[:, 1])
        rates = np.divide(sums, counts, out=np.full(BINS, np.nan), where=counts > 0)
        span = f"steps {first} to {last}" if first != last else f"step {first}"
        lines.append(line(span, rates, colour=colour, points=True))
    return chart(name, lines, name)


MAKERS: Mapping[str, Callable[[RunCharts, str], Chart | None]] = {
    "draws": _draws,
    "competence": _competence,
    "pass_rate_by_expected": _calibration,
}
"""Charts of more than figures of steps; each returns None for a run without what it shows."""
