"""Compare methods by the curves of their runs: held-out accuracy against what it cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

RESAMPLES = 5000
"""Resamples of the seeds of both methods, for the interval of a cost."""


def label_of(cost: str) -> str:
    """Return the display name of a cost."""
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
    """Yield for each line of a run's metrics what the run has spent by then."""
    spent: Spent = {}
    for line in metrics:
        yield (spent := add_spent(spent, line))


@dataclass(frozen=True)
class Curve:
    """Held-out accuracy (avg@k) of one run at each of its E evaluations, shape (E,).

    `costs` is what was spent by then, shape (E,) for each of `COSTS`.
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
        """Whether it ended far below its best."""
        return self.end < COLLAPSED * float(self.accuracy.max())

    def cost_of(self, targets: Floats | float, cost: str) -> Floats:
        """Find what reaching each target cost; NaN where it was not reached.

        Costs are read off the non-decreasing curve nearest to this one, linear between evaluations.
        """
        fitted = optimize.isotonic_regression(self.accuracy).x
        just_below = np.nextafter(targets, -np.inf)  # so that a level counts from where it begins
        return np.interp(just_below, fitted, self.costs[cost], right=np.nan)

    def accuracy_at(self, cost: str, spent: Floats) -> Floats:
        """Interpolate the accuracy; NaN beyond the end."""
        return np.interp(spent, self.costs[cost], self.accuracy, right=np.nan)


Curves = Mapping[int, Curve]
"""The curves of one method, by seed."""


@dataclass(frozen=True)
class Reached:
    """What it cost a method to reach the target, and how many of its `runs` got there.

    `share` is the cost as a share of all that the baseline spent: a geometric mean over seeds, a
    lower bound if runs never got there, which count with all that they spent. Its interval is a
    bootstrap over the seeds of both methods, so the baseline's accuracy varies too.
    """

    share: Estimate
    runs: int


@dataclass(frozen=True)
class MethodResult:
    """What is known of a method after its runs.

    Attributes:
        seeds: Of its runs.
        accuracy: At the end, mean over seeds.
        middle: Its interquartile mean over seeds.
        worst: The lowest accuracy at the end.
        difference: From the baseline, over the seeds that both have; None for the baseline itself,
            with fewer than two such seeds, or if all differ by the same, which has no interval.
        p_value: Of that difference, by the paired t-test; None without one.
        reached: What the target cost, for each of `COSTS`.
        collapsed: Seeds of runs that collapsed.
    """

    seeds: Sequence[int]
    accuracy: Estimate
    middle: float
    worst: float
    difference: Estimate | None
    p_value: float | None
    reached: Mapping[str, Reached]
    collapsed: Sequence[int]

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `not shown` where the interval of the difference spans 0."""
        return self.difference.verdict("better", "worse") if self.difference else ""


@dataclass(frozen=True)
class Comparison:
    """Methods, each with the curves of its seeds, compared with the method `baseline`.

    `target` is the accuracy whose cost is compared. `chosen` are the settings that each method was
    given of those that it could choose from.
    """

    curves: Mapping[str, Curves]
    baseline: str
    target: float
    results: Mapping[str, MethodResult]
    chosen: Mapping[str, Mapping[str, Any]]

    @property
    def before(self) -> Estimate:
        """The baseline's accuracy before training, over seeds."""
        starts = (curve.accuracy[0] for curve in self.curves[self.baseline].values())
        return mean_over_seeds(starts, (0, 1))

    @property
    def learned(self) -> bool:
        """Whether the target is surely above the accuracy before training."""
        return self.target > self.before.high

    def shown_by_holm(self) -> list[str]:
        """Return the methods that differ from the baseline at 5 % for all comparisons together.

        Holm (1979): of m p-values, the i-th smallest is compared with 0.05 / (m − i + 1), up to the
        first that is larger.
        """
        found = [(r.p_value, name) for name, r in self.results.items() if r.p_value is not None]
        by_p_value = sorted(found)
        over = [p * (len(found) - i) > 0.05 for i, (p, _) in enumerate(by_p_value)]
        return [name for _, name in by_p_value[: [*over, True].index(True)]]


def compare_methods(
    curves: Mapping[str, Curves],
    baseline: str,
    target: float | None = None,
    chosen: Mapping[str, Mapping[str, Any]] | None = None,
) -> Comparison:
    """Compare methods with a baseline, seed by seed; see `Comparison` for the arguments.

    Intervals are 95 % over seeds: of accuracies by Student's t, of costs by bootstrap. The target
    is by default the interquartile mean of the baseline's accuracy at the end.
    """
    base = curves[baseline]
    results = {name: _result(own, base, target) for name, own in curves.items()}
    if target is None:
        target = results[baseline].middle
    return Comparison(curves, baseline, target, results, chosen or {})


def _result(own: Curves, base: Curves, target: float | None) -> MethodResult:
    ends = _ends(own)
    paired = np.array([own[seed].end - base[seed].end for seed in own if seed in base])
    has_interval = len(paired) > 1 and np.ptp(paired) > 0  # the baseline's own are 0
    return MethodResult(
        seeds=sorted(own),
        accuracy=mean_over_seeds(ends, (0, 1)),
        middle=float(interquartile_mean(ends)),
        worst=float(ends.min()),
        difference=mean_over_seeds(paired, (-1, 1)) if has_interval else None,
        p_value=float(stats.ttest_1samp(paired, 0).pvalue) if has_interval else None,
        reached={cost: _reached(own, base, target, cost) for cost in COSTS},
        collapsed=[seed for seed, curve in own.items() if curve.collapsed],
    )


def _ends(curves: Curves) -> Floats:
    return np.array([curve.end for curve in curves.values()])


def _reached(own: Curves, base: Curves, target: float | None, cost: str) -> Reached:
    if own is base and target is None:  # by definition, once it has spent everything
        return Reached(Estimate(1.0, 1.0, 1.0), len(base))
    rng = np.random.default_rng(0)
    of_own, of_base = (  # the first row of each is the seeds themselves
        np.vstack([np.arange(count), rng.integers(count, size=(RESAMPLES, count))])
        for count in (len(own), len(base))
    )
    targets = np.full(len(of_base), target)
    if target is None:
        targets = interquartile_mean(_ends(base)[of_base])
    whole, most = (
        np.array([curve.costs[cost][-1] for curve in curves.values()]) for curves in (base, own)
    )
    found = np.array([curve.cost_of(targets, cost) for curve in own.values()]).T
    spent = np.where(np.isnan(found), most, found)
    with np.errstate(divide="ignore"):  # a run that was there before anything was spent
        means = np.log(np.take_along_axis(spent, of_own, axis=1)).mean(axis=1)
    shares = np.exp(means) / whole[of_base].mean(axis=1)
    interval = _stretched_percentiles(shares, min(len(own), len(base)))
    return Reached(Estimate(float(shares[0]), *interval), int(np.isfinite(found[0]).sum()))


def _stretched_percentiles(shares: Floats, count: int) -> tuple[float, float]:
    """Return a 95 % interval from the estimate and its resamples.

    Few seeds resample too narrowly. So the logarithms' percentiles are moved away from the estimate
    as far as Student's t and n/(n - 1) widen the interval of a mean (Hesterberg 2015, arXiv
    1411.5279, section 5.3, widens by other percentiles, which end at the range of the resamples).
    """
    share = float(shares[0])
    if count < 2:
        return share, share
    low, high = np.quantile(shares[1:], [0.025, 0.975])
    if share == 0.0:
        return share, float(high)
    wider = np.sqrt(count / (count - 1)) * stats.t.ppf(0.975, count - 1) / stats.norm.ppf(0.975)
    return float(share * (low / share) ** wider), float(share * (high / share) ** wider)


def interquartile_mean(values: Floats) -> Floats:
    """Average the middle half, along the last axis (Agarwal et al. 2021, arXiv 2108.13264)."""
    return np.asarray(stats.trim_mean(values, 0.25, axis=-1))


def mean_over_seeds(
    values: Iterable[float], within: tuple[float, float] = (-np.inf, np.inf)
) -> Estimate:
    """Return the mean over seeds, with the 95 % interval by Student's t; no width for one seed.

    The part of the interval outside `within` is cut off: what a mean cannot be, such as an accuracy
    above 1, takes nothing from its coverage.
    """
    of_seeds = np.array(list(values), dtype=float)
    mean = float(of_seeds.mean())
    if len(of_seeds) < 2:
        return Estimate(mean, mean, mean)
    half = float(stats.t.ppf(0.975, len(of_seeds) - 1) * stats.sem(of_seeds))
    low, high = np.clip([mean - half, mean + half], *within)
    return Estimate(mean, float(low), float(high))
