"""What the charts of a report show: lines over a grid of points, as `parts/charts.js` draws them.

A grid is what lines are drawn over: one or more axes of equal length, such as steps, draws and
tokens. The charts on one grid are zoomed together.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.records import Row

SMOOTHED = 10
"""Steps that a smooth line averages over, or a hundredth of the run if that is more."""

BINS = 10
"""Bins of what was believed, in charts of pass rates against it."""

SPIKE = 10.0
"""A figure so many times its median flattens the rest of a chart that is not logarithmic."""

OF_GROUPS = ("zero_variance", "exits", "draws", "rounds")
"""Charts that say nothing of single responses."""

Floats = NDArray[np.float64]
Chart = dict[str, Any]
Line = dict[str, Any]


def line(label: str, values: ArrayLike, **others: Any) -> Line:
    """Make a line of a chart: its name, and its values over the grid, NaN where there are none.

    `others` are `low` and `high`, a band around it; `style`, which is `faint`, `dashed`, `points`
    or a plain line; `colour`, a number; `points`, which marks each value; `group`, the label of
    another line that switches this one too.
    """
    return {"label": label, "values": np.asarray(values, dtype=float), **others}


def estimates(label: str, found: Sequence[Mapping[str, float] | None], **others: Any) -> Line:
    """Make a line of estimates, each a point, with a band of their intervals; None is a gap."""
    value, low, high = (
        np.array([np.nan if each is None else each[part] for each in found])
        for part in ("value", "low", "high")
    )
    return line(label, value, low=low, high=high, points=True, **others)


def chart(name: str, lines: Sequence[Line], grid: str = "steps", **others: Any) -> Chart:
    """Make a chart of this name, its id in the page, from lines over a grid.

    `others` are what `described` does not say of it: `title`; `about`, a sentence; `unit`, of which
    `share` is shown in percent; `low` and `high`, the ends of its axis; `xlabel`; `stacked`;
    `wide`.
    """
    return {**described().get(name, {}), "id": name, "lines": list(lines), "grid": grid, **others}


@cache
def described(what: str = "charts") -> dict[str, dict[str, Any]]:
    """Return the contents of `parts/charts.toml`, or of another such file."""
    file = files("rollwise.reports") / f"parts/{what}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def evenly(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` places of `count`, evenly spaced, with the first and the last."""
    if count <= wanted:
        return list(range(count))
    return [int(place) for place in np.unique(np.linspace(0, count - 1, wanted).round())]


def moving_mean(values_S: Floats, width: int) -> Floats:
    """Average over the last `width` values, or as many as there are; NaN is ignored."""
    known = ~np.isnan(values_S)
    sums = np.cumsum(np.where(known, values_S, 0.0))
    counts = np.cumsum(known).astype(float)
    sums[width:], counts[width:] = sums[width:] - sums[:-width], counts[width:] - counts[:-width]
    means: Floats = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means


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
        costs = {
            "steps": np.array([row["step"] for row in lines]),
            "draws": np.cumsum([int(row.get("draws", 0)) for row in lines]),
            "tokens": np.cumsum([int(row.get("tokens", 0)) for row in lines]),
            "minutes": np.array([row["elapsed"] / 60 for row in lines]),
        }
        if places := [place for place, row in enumerate(lines) if "heldout" in row]:
            self.grids["evaluations"] = {name: cost[places] for name, cost in costs.items()}
            figures = [lines[place]["heldout"] for place in places]
            drawn = [estimates(name, [each[name] for each in figures]) for name in figures[0]]
            self.charts.append(chart("heldout", drawn, "evaluations"))
            self.remarks.append("Bands are 95 % intervals over problems.")
        if not self.steps:
            return
        self.grids["steps"] = {name: cost[-count:] for name, cost in costs.items()}
        if count > 2:
            self.remarks.append(
                f"Thick lines are means of {self.smoothed} steps, thin ones single steps."
            )
        single = all(row["draws"] <= row["prompts"] for row in self.steps)
        for name, said in described().items():
            make = MAKERS.get(name, _parts if "parts" in said else _figures)
            if not (single and name in OF_GROUPS) and (made := make(self, name)):
                grid = name if name in self.grids else "steps"
                self.charts.append(_with_scale(chart(name, made, grid)))

    def values(self, name: str) -> Floats:
        """Return a figure of each step, shape (S,); NaN where a step has none."""
        return np.array([row.get(name) for row in self.steps], dtype=float)

    def figure(self, label: str, values_S: Floats, colour: int = 0) -> list[Line]:
        """Draw a figure of each step faintly, and its moving mean."""
        plain = line(label, values_S, style="points", colour=colour)
        if len(values_S) < 3:
            return [plain]
        smooth = moving_mean(values_S, self.smoothed)
        name = f"{label}, mean of {self.smoothed} steps"
        own = {"label": "of the step", "style": "faint", "group": name}
        return [plain | own, line(name, smooth, colour=colour)]


def _figures(run: RunCharts, name: str) -> list[Line]:
    figures = described()[name].get("figures", {})
    found = [(label, run.values(figure)) for figure, label in figures.items()]
    known = [(label, values_S) for label, values_S in found if not np.isnan(values_S).all()]
    return [
        part
        for colour, (label, values_S) in enumerate(known)
        for part in run.figure(label, values_S, colour)
    ]


def _with_scale(drawn: Chart) -> Chart:
    """Make the axis of a chart logarithmic if it may have spikes, and one flattens the rest."""
    values = np.concatenate([each["values"] for each in drawn["lines"]])
    values = values[~np.isnan(values)]
    if not drawn.get("spikes") or values.min() <= 0 or values.max() < SPIKE * np.median(values):
        return drawn
    return drawn | {"log": True, "about": f"{drawn.get('about', '')} The axis is logarithmic."}


def _parts(run: RunCharts, name: str) -> list[Line]:
    """Draw what steps consist of, in shares where that is the unit; nothing if all is one part."""
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
    return lines if len(lines) > 1 else []


def _parts_of(row: Row, path: str) -> Mapping[str, float]:
    found: Any = row
    for name in path.split("."):
        found = found[name]
    return found if isinstance(found, dict) else {f"round {r}": n for r, n in enumerate(found, 1)}


def _draws(run: RunCharts, name: str) -> list[Line]:
    if any(len(row["draws_by_round"]) > 1 for row in run.steps):
        return []
    surplus = [row["surplus_draws"] / max(row["prompts"], 1) for row in run.steps]
    lines = run.figure("all", run.values("draws_per_prompt"))
    return lines + run.figure("surplus", np.array(surplus), colour=1)


def _rewards(run: RunCharts, name: str) -> list[Line]:
    steps = [row.get(name, {}) for row in run.steps]
    names = dict.fromkeys(part for step in steps for part in step if "/" not in part)
    found = [(part, np.array([step.get(part) for step in steps], dtype=float)) for part in names]
    return [
        drawn
        for colour, (part, values_S) in enumerate(found)
        for drawn in run.figure(part, values_S, colour)
    ]


def _competence(run: RunCharts, name: str) -> list[Line]:
    competence = run.values("competence")
    low, middle, high = (run.values(f"difficulty_p{q}") for q in (10, 50, 90))
    difficulty = line("difficulty: median, 10 to 90 %", middle, low=low, high=high, colour=1)
    known = not np.isnan(competence).all()
    return [difficulty, line("competence", competence, colour=0)] if known else []


def _calibration(run: RunCharts, name: str) -> list[Line]:
    """Draw pass rates against what was believed, in the first, middle and last third of steps."""
    if not any(row.get(name) for row in run.steps):
        return []
    ends = np.linspace(0.0, 1.0, BINS + 1)
    middles = (ends[:-1] + ends[1:]) / 2
    run.grids[name] = {described()[name]["xlabel"]: middles}
    lines = [line("as expected", middles, style="dashed", colour=7)]
    thirds = np.array_split(np.arange(len(run.steps)), min(3, len(run.steps)))
    for colour, third in enumerate(thirds):
        steps = [run.steps[at] for at in third]
        pairs = [pair for row in steps for pair in row.get(name) or ()]
        expected, found = np.array(pairs, dtype=float).reshape(-1, 2).T
        counts, _ = np.histogram(expected, ends)
        sums, _ = np.histogram(expected, ends, weights=found)
        rates = np.divide(sums, counts, out=np.full(BINS, np.nan), where=counts > 0)
        first, last = steps[0]["step"], steps[-1]["step"]
        span = f"steps {first} to {last}" if first != last else f"step {first}"
        lines.append(line(span, rates, colour=colour, points=True))
    return lines


MAKERS: Mapping[str, Callable[[RunCharts, str], list[Line]]] = {
    "draws": _draws,
    "rewards": _rewards,
    "competence": _competence,
    "pass_rate_by_expected": _calibration,
}
"""Charts of more than figures of steps; none is drawn for a run without what it shows."""
