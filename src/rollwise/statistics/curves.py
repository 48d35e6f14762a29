"""Compare methods by the curves of their runs: held-out accuracy against what it cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from rollwise.statistics.estimates import Estimate

Floats = NDArray[np.float64]
Row = Mapping[str, Any]

COSTS = ("steps", "draws", "tokens", "seconds", "cpu_seconds")
"""What a curve can be drawn against; seconds are those of sampling and learning."""

COLLAPSED = 0.5
"""A run has collapsed if it ends below this share of the best accuracy that it had."""


def label_of(cost: str) -> str:
    """Return what people call a cost."""
    return cost.replace("cpu_", "CPU ")


Spent = dict[str, float]
"""What a run has spent, for each of `COSTS`."""


def add_spent(spent: Spent, line: Row) -> Spent:
    """Add what a line of a run's metrics has cost; the evaluation before training costs nothing."""
    seconds = line.get("seconds", {})
    own = {name: line.get(name, 0) for name in ("draws", "tokens", "cpu_seconds")}
    own["seconds"] = seconds.get("sampling", 0.0) + seconds.get("learning", 0.0)
    return {name: spent.get(name, 0) + own.get(name, 0) for name in COSTS} | {"steps": line["step"]}


def spent_until_each(metrics: Iterable[Row]) -> Iterator[Spent]:
    """Yield for each line of a run's metrics what the run has spent until then."""
    spent: Spent = {}
    for line in metrics:
        yield (spent := add_spent(spent, line))


@dataclass(frozen=True)
class Curve:
    """Held-out accuracy of one run at each of its evaluations.

    Attributes:
        accuracy: avg@k, shape (E,).
        costs: What was spent until each evaluation, shape (E,) for each of `COSTS`.
        folder: Of the run, if it is known.
    """

    accuracy: Floats
    costs: Mapping[str, Floats]
    folder: Path | None = None

    @classmethod
    def of_metrics(cls, metrics: Iterable[Row]) -> "Curve":
        """Read the curve of a run from its metrics; a ValueError if it was never evaluated."""
        lines, accuracy, costs = list(metrics), [], []
        for line, spent in zip(lines, spent_until_each(lines), strict=True):
            if "heldout" in line:
                accuracy.append(next(iter(line["heldout"].values()))["value"])
                costs.append([*spent.values()])
        if not accuracy:
            raise ValueError("a run without an evaluation has no curve")
        columns = np.array(costs, dtype=float).T
        return cls(np.array(accuracy), dict(zip(COSTS, columns, strict=True)))

    @classmethod
    def from_json(cls, content: Mapping[str, Sequence[float]]) -> "Curve":
        """Read what `as_json` wrote."""
        columns = {name: np.array(values, dtype=float) for name, values in content.items()}
        return cls(columns.pop("accuracy"), columns)

    def as_json(self) -> dict[str, list[float]]:
        """Return the columns of the curve, rounded."""
        columns = {"accuracy": self.accuracy, **self.costs}
        return {name: np.round(values, 6).tolist() for name, values in columns.items()}

    @property
    def end(self) -> float:
        """The accuracy at the end."""
        return float(self.accuracy[-1])

    @property
    def collapsed(self) -> bool:
        """Whether it ended far below the best that it had been."""
        return self.end < COLLAPSED * float(self.accuracy.max())

    def cost_of(self, target: float, cost: str) -> float | None:
        """Find what reaching `target` cost; None if it was not reached.

        It counts by the non-decreasing curve nearest to this one, linear between evaluations.
        """
        spent = self.costs[cost]
        fitted = optimize.isotonic_regression(self.accuracy).x
        if fitted[-1] < target:
            return None
        after = int(np.argmax(fitted >= target))
        if after == 0:
            return float(spent[0])
        return float(np.interp(target, fitted[after - 1 : after + 1], spent[after - 1 : after + 1]))

    def accuracy_at(self, cost: str, spent: Floats) -> Floats:
        """Interpolate the accuracy; NaN beyond the end."""
        return np.interp(spent, self.costs[cost], self.accuracy, right=np.nan)


Curves = Mapping[int, Curve]
"""The curves of one method, by seed."""


@dataclass(frozen=True)
class Reached:
    """What it cost a method to reach the target.

    Attributes:
        share: Of what the baseline spent in all: geometric mean over seeds; a lower bound where
            runs never got there, which count with all that they spent.
        runs: How many runs got there.
    """

    share: Estimate
    runs: int


@dataclass(frozen=True)
class MethodResult:
    """What is known of a method after its runs.

    Attributes:
        seeds: Of its runs.
        accuracy: At the end, mean over seeds.
        middle: Its interquartile mean over seeds (Agarwal et al. 2021, arXiv 2108.13264).
        worst: The lowest accuracy at the end.
        difference: To the baseline, over the seeds that both have; None for the baseline itself,
            without two such seeds, or where all differ by the same, which has no interval.
        reached: What the target cost, for each of `COSTS`.
        collapsed: Seeds of runs that collapsed.
    """

    seeds: Sequence[int]
    accuracy: Estimate
    middle: float
    worst: float
    difference: Estimate | None
    reached: Mapping[str, Reached]
    collapsed: Sequence[int]

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `not shown` where the interval of the difference spans 0."""
        return self.difference.verdict("better", "worse") if self.difference else ""


@dataclass(frozen=True)
class Comparison:
    """Methods compared with a baseline.

    Attributes:
        curves: Of each method, by seed.
        baseline: The method that the others are compared with.
        target: The accuracy whose cost is compared.
        results: Of each method.
        chosen: The settings that each method was given of those that it could choose from.
    """

    curves: Mapping[str, Curves]
    baseline: str
    target: float
    results: Mapping[str, MethodResult]
    chosen: Mapping[str, Mapping[str, Any]]


def compare_methods(
    curves: Mapping[str, Curves],
    baseline: str,
    target: float | None = None,
    chosen: Mapping[str, Mapping[str, Any]] | None = None,
) -> Comparison:
    """Compare methods with a baseline, seed by seed; see `Comparison` for the arguments.

    Intervals are 95 % over seeds, by Student's t. The target is by default the baseline's mean
    accuracy at the end.
    """
    base = curves[baseline]
    own_target = target is None
    if target is None:
        target = float(np.mean([curve.end for curve in base.values()]))
    results = {
        name: _result(own, base if name != baseline else {}, base, target)
        for name, own in curves.items()
    }
    if own_target:  # it has this accuracy, by its definition, once it has spent everything
        whole = Reached(Estimate(1.0, 1.0, 1.0), len(base))
        spent = dict.fromkeys(COSTS, whole)
        results[baseline] = replace(results[baseline], reached=spent)
    return Comparison(curves, baseline, target, results, chosen or {})


def _result(own: Curves, others: Curves, base: Curves, target: float) -> MethodResult:
    ends = np.array([curve.end for curve in own.values()])
    paired = np.array([own[seed].end - others[seed].end for seed in own if seed in others])
    has_interval = len(paired) > 1 and np.ptp(paired) > 0
    return MethodResult(
        seeds=sorted(own),
        accuracy=mean_over_seeds(ends),
        middle=float(stats.trim_mean(ends, 0.25)),
        worst=float(ends.min()),
        difference=mean_over_seeds(paired) if has_interval else None,
        reached={cost: _reached(own, base, target, cost) for cost in COSTS},
        collapsed=[seed for seed, curve in own.items() if curve.collapsed],
    )


def _reached(own: Curves, base: Curves, target: float, cost: str) -> Reached:
    """Say what reaching the target cost, as shares of what the baseline spent in all."""
    whole = np.mean([curve.costs[cost][-1] for curve in base.values()])
    found = [curve.cost_of(target, cost) for curve in own.values()]
    shares = [
        (curve.costs[cost][-1] if spent is None else spent) / whole
        for spent, curve in zip(found, own.values(), strict=True)
    ]
    return Reached(_geometric_mean(shares), sum(spent is not None for spent in found))


def _geometric_mean(shares: Sequence[float]) -> Estimate:
    """Average shares over seeds on the logarithmic scale, so that their interval is above 0."""
    if min(shares) == 0.0:  # it was there before anything was spent
        return Estimate(0.0, 0.0, max(shares))
    mean = mean_over_seeds(np.log(shares))
    return Estimate(*np.exp([mean.value, mean.low, mean.high]).tolist())


def mean_over_seeds(values: Iterable[float]) -> Estimate:
    """Average over seeds, with the 95 % interval by Student's t; of one seed it has no width."""
    of_seeds = np.array(list(values), dtype=float)
    mean = float(of_seeds.mean())
    if len(of_seeds) < 2:
        return Estimate(mean, mean, mean)
    half = float(stats.t.ppf(0.975, len(of_seeds) - 1) * stats.sem(of_seeds))
    return Estimate(mean, mean - half, mean + half)
