"""The charts of a run, by what its metrics have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollwise.records import Row
from rollwise.reports.charts import (
    SMOOTHED,
    Chart,
    Floats,
    chart,
    described,
    estimates,
    evenly,
    line,
    moving_mean,
)
from rollwise.step.ledger import PLACES

MOST_POINTS = 800
"""Points of a line; the steps of a longer run are averaged over spans of equal length."""

MOST_EVALUATIONS = 400
"""Evaluations that are shown; of more, evenly spaced ones, with the first and the last."""

BINS = 10
"""Parts of the range of what was believed, in charts of pass rates against it."""

OF_GROUPS = ("zero_variance", "exits", "draws")
"""Charts that say nothing of single responses."""


@dataclass
class RunCharts:
    """The charts of a run, and what was left out of them.

    Args:
        lines: Its metrics, at least one line.
        points: The most points of a line.
    """

    lines: Sequence[Row]
    points: int = MOST_POINTS
    charts: list[Chart] = field(default_factory=list)
    grids: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = [row for row in self.lines if row["step"] > 0]
        count = len(self.steps)
        self._spans = np.array_split(np.arange(count), max(1, min(count, self.points)))
        self.smoothed = min(count, max(SMOOTHED, count // 100))
        self._cost = _costs(self.lines)
        self._add_evaluations()
        if self.steps:
            self._add_steps()
            for name in described():
                if not (self._single and name in OF_GROUPS):
                    made = MAKERS.get(name, _of_figures)(self, name)
                    self.charts += [] if made is None else [made]

    @property
    def _single(self) -> bool:
        """Whether every prompt got a single response."""
        return all(row["draws"] <= row["prompts"] for row in self.steps)

    def values(self, name: str) -> Floats:
        """Return a figure of each step, shape (S,); NaN where a step has none."""
        return np.array([row.get(name) for row in self.steps], dtype=float)

    def known(self, name: str) -> bool:
        """Whether any step has a figure."""
        return any(row.get(name) is not None for row in self.steps)

    def averaged(self, found: ArrayLike) -> Floats:
        """Average a figure of each step over the spans of the grid; NaN where none is known."""
        values_S = np.asarray(found, dtype=float)
        return np.array([_mean(values_S[span]) for span in self._spans])

    def figure(self, label: str, values_S: Floats, colour: int = 0) -> list[dict[str, Any]]:
        """Draw a figure of each step faintly, and its moving mean."""
        plain = line(label, self.averaged(values_S), style="points", colour=colour)
        if len(values_S) < 3:
            return [plain]
        smooth = self.averaged(moving_mean(values_S, self.smoothed))
        name = f"{label}, mean of {self.smoothed} steps"
        own = {"label": "of the step", "style": "faint", "group": name}
        return [plain | own, line(name, smooth, colour=colour)]

    def _add_steps(self) -> None:
        ends = [int(span[-1]) for span in self._spans]
        first = len(self.lines) - len(self.steps)
        if len(self.steps) > 2:
            self.remarks.append(
                f"Thick lines are means of {self.smoothed} steps, thin ones single steps."
            )
        self.grids["steps"] = {name: cost[first:][ends] for name, cost in self._cost.items()}
        if len(self.steps) > self.points:
            self.remarks.append(
                f"Each point of a chart is the mean of about {len(self.steps) / self.points:.0f} "
                f"steps: the run has {len(self.steps):,}, and {self.points} points are shown."
            )

    def _add_evaluations(self) -> None:
        places = [place for place, row in enumerate(self.lines) if "heldout" in row]
        if not places:
            return
        if len(places) > MOST_EVALUATIONS:
            self.remarks.append(
                f"Of {len(places):,} evaluations, {MOST_EVALUATIONS} evenly spaced ones are shown."
            )
            places = [places[at] for at in evenly(len(places), MOST_EVALUATIONS)]
        self.grids["evaluations"] = {name: cost[places] for name, cost in self._cost.items()}
        figures = [self.lines[place]["heldout"] for place in places]
        lines = [estimates(name, [each[name] for each in figures]) for name in figures[0]]
        self.charts.append(chart("heldout", lines, "evaluations"))
        self.remarks.append("Bands are 95 % intervals over problems.")


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _costs(lines: Sequence[Row]) -> dict[str, Any]:
    return {
        "steps": np.array([row["step"] for row in lines]),
        "draws": np.cumsum([int(row.get("draws", 0)) for row in lines]),
        "tokens": np.cumsum([int(row.get("tokens", 0)) for row in lines]),
        "minutes": np.array([row["elapsed"] / 60 for row in lines]),
    }


def _of_figures(run: RunCharts, name: str) -> Chart | None:
    """Draw figures that steps have."""
    figures = described()[name].get("figures", {})
    known = [(figure, label) for figure, label in figures.items() if run.known(figure)]
    lines = [
        part
        for colour, (figure, label) in enumerate(known)
        for part in run.figure(label, run.values(figure), colour)
    ]
    return chart(name, lines) if lines else None


def _draws(run: RunCharts, name: str) -> Chart:
    rounds = max((len(row["draws_by_round"]) for row in run.steps), default=0)
    if rounds > 1:
        by_round = [[*row["draws_by_round"], *[None] * rounds] for row in run.steps]
        lines = [
            line(f"round {r + 1}", run.averaged([each[r] for each in by_round]))
            for r in range(rounds)
        ]
        return chart(name, lines, **described()["rounds"])
    surplus = _per_prompt(run, [row["surplus_draws"] for row in run.steps])
    lines = run.figure("all", run.values("draws_per_prompt"))
    return chart(name, lines + run.figure("surplus", surplus, colour=1))


def _per_prompt(run: RunCharts, counts: Sequence[int]) -> Floats:
    prompts: Floats = np.maximum([float(row["prompts"]) for row in run.steps], 1.0)
    return np.array(counts) / prompts


def _exits(run: RunCharts, name: str) -> Chart:
    lines = [
        line(
            reason,
            run.averaged(_per_prompt(run, [row["exits"][reason] for row in run.steps])),
            colour=colour,
        )
        for reason, colour in (("satisfied", 2), ("exhausted", 1), ("futile", 7))
    ]
    return chart(name, lines)


def _seconds(run: RunCharts, name: str) -> Chart:
    phases = list(dict.fromkeys(phase for row in run.steps for phase in row["seconds"]))
    lines = [
        line(phase, run.averaged([row["seconds"].get(phase, 0) for row in run.steps]))
        for phase in phases
    ]
    return chart(name, lines)


def _ledger(run: RunCharts, name: str) -> Chart | None:
    """Draw where the tokens of each step went, as shares; None where all went to one place."""
    tokens = [row["ledger"]["tokens"] for row in run.steps]
    lines = []
    for colour, place in zip((2, 6, 1, 3, 4, 7), PLACES, strict=True):
        shares = [max(0, each.get(place, 0)) / max(1, sum(each.values())) for each in tokens]
        if any(shares):
            values = run.averaged(shares)
            lines.append(line(place.replace("_", " "), values, colour=colour))
    return chart(name, lines) if len(lines) > 1 else None


def _competence(run: RunCharts, name: str) -> Chart | None:
    if not run.known("competence"):
        return None
    low, middle, high = (run.averaged(run.values(f"difficulty_p{q}")) for q in (10, 50, 90))
    lines = [
        line("difficulty: median, 10 to 90 %", middle, low=low, high=high, colour=1),
        line("competence", run.averaged(run.values("competence"))),
    ]
    return chart(name, lines)


def _calibration(run: RunCharts, name: str) -> Chart | None:
    """Pass rates against what was believed: of the first, middle and last third of the steps."""
    thirds = [third for third in np.array_split(np.arange(len(run.steps)), 3) if len(third)]
    pairs = [
        np.array([pair for at in third for pair in run.steps[at].get(name) or ()], dtype=float)
        for third in thirds
    ]
    found = [part.reshape(-1, 2)[:, 0] for part in pairs if part.size]
    if not found:
        return None
    believed = np.concatenate(found)
    is_rate = name == "pass_rate_by_expected"
    low, high = (0.0, 1.0) if is_rate else (believed.min(), believed.max())
    ends = np.linspace(low, high, BINS + 1)
    middles = (ends[:-1] + ends[1:]) / 2
    run.grids[name] = {described()[name]["xlabel"]: middles}
    lines = [line("as expected", middles, style="dashed", colour=7)] if is_rate else []
    for colour, (third, part) in enumerate(zip(thirds, pairs, strict=True)):
        first, last = run.steps[third[0]]["step"], run.steps[third[-1]]["step"]
        which = np.clip(np.digitize(part.reshape(-1, 2)[:, 0], ends) - 1, 0, BINS - 1)
        rates = [_mean(part.reshape(-1, 2)[which == place, 1]) for place in range(BINS)]
        span = f"steps {first} to {last}" if first != last else f"step {first}"
        lines.append(line(span, rates, colour=colour, points=True))
    return chart(name, lines, name)


MAKERS: Mapping[str, Callable[[RunCharts, str], Chart | None]] = {
    "exits": _exits,
    "draws": _draws,
    "competence": _competence,
    "pass_rate_by_expected": _calibration,
    "pass_rate_by_difficulty": _calibration,
    "seconds": _seconds,
    "ledger": _ledger,
}
"""Charts of more than figures of steps; each returns None for a run without what it shows."""
