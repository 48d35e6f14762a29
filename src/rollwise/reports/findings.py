"""What a person who reads the metrics of a run would warn of: since which step, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.records import Row, RunFolder
from rollwise.records.final import damaged
from rollwise.reports.charts import SMOOTHED, Floats, described, moving_mean

FEWEST_STEPS = 10
"""Fewer steps say nothing of a trend."""

START = FEWEST_STEPS - 1
"""The place of the step whose figures stand for the beginning."""

NOTHING_TRAINED = 3
"""Steps in a row without a trained group that are worth a warning."""

FAILED = {"grader_failures": 0.01, "lost_draws": 0.01, "skipped_updates": 0.0}
"""Shares of the draws from which failures are worth a warning."""


@dataclass(frozen=True)
class Finding:
    """Something to look at: where it begins, what it is, what to do, the id of its chart."""

    step: int
    title: str
    what: str
    advice: str
    chart: str = ""


def findings_of(folder: RunFolder) -> list[Finding]:
    """Look for what goes wrong in a run, and for missing or damaged records."""
    found = findings(folder.read_metrics(), folder.read_config())
    if names := damaged(folder):
        what = f"{', '.join(names)} is missing, or is not what was written."
        advice = "Restore it from a copy: what is shown of this run is incomplete or wrong."
        found.insert(0, Finding(0, "Records are damaged", what, advice))
    return found


def findings(lines: Sequence[Row], config: Mapping[str, Any]) -> list[Finding]:
    """Look for what goes wrong in a run with these metrics and settings, in the order it began.

    A trend counts if it lasts to the newest step; it begins where it has held since. Figures of
    steps are moving means, as in the charts.
    """
    steps = [line for line in lines if line["step"] > 0]
    found = [*_collapse(lines), *_counts(steps), *_untrained(steps)]
    if len(steps) >= FEWEST_STEPS:
        found += _trends(steps, config)
    return sorted(found, key=lambda finding: finding.step)


def _finding(name: str, line: Row, **figures: Any) -> Finding:
    texts = described("findings")[name]
    what = texts["what"].format(**figures)
    return Finding(line["step"], texts["title"], what, texts["advice"], texts.get("chart", ""))


def _begun(bad: Sequence[bool] | NDArray[np.bool_]) -> int:
    """Return the place from which all are bad."""
    return len(bad) - [*reversed(bad), False].index(False)


def _collapse(lines: Sequence[Row]) -> Iterator[Finding]:
    """Held-out accuracy is surely below its best: the intervals do not meet."""
    evaluated = [line for line in lines if "heldout" in line]
    if len(evaluated) < 2:
        return
    name = next(iter(evaluated[0]["heldout"]))
    figures = [line["heldout"][name] for line in evaluated]
    best = max(range(len(figures)), key=lambda at: figures[at]["value"])
    below = [at > best and f["high"] < figures[best]["low"] for at, f in enumerate(figures)]
    if below[-1]:
        was, at = figures[best]["value"], evaluated[best]["step"]
        now = figures[-1]["value"]
        yield _finding("heldout", evaluated[_begun(below)], metric=name, now=now, best=was, at=at)


def _counts(steps: Sequence[Row]) -> Iterator[Finding]:
    """Failures, which count wherever they were."""
    draws = sum(line.get("draws", 0) for line in steps)
    for name, share in FAILED.items():
        failed = [line for line in steps if line.get(name)]
        total = sum(line[name] for line in failed)
        if failed and total >= share * draws:
            yield _finding(name, failed[0], total=total, draws=draws)


def _untrained(steps: Sequence[Row]) -> Iterator[Finding]:
    """Find that the newest steps trained on no group, since the first of them."""
    since = _begun([line.get("trained_groups") == 0 for line in steps])
    idle = len(steps) - since
    if idle >= NOTHING_TRAINED:
        yield _finding("untrained", steps[since], steps=idle)


def _trends(steps: Sequence[Row], config: Mapping[str, Any]) -> Iterator[Finding]:
    """What has lasted to the newest step, from the step where it began."""
    for name, values_S, bad_S in _rules(steps, config):
        bad_S[:START] = False  # the first means are of few steps
        if bad_S[-1]:
            now, begun = values_S[-1], values_S[START]
            yield _finding(
                name,
                steps[_begun(bad_S)],
                now=now,
                begun=begun,
                best=_best(values_S)[-1],
                percent=100 * now,
                percent_begun=100 * begun,
            )


def _rules(
    steps: Sequence[Row], config: Mapping[str, Any]
) -> Iterator[tuple[str, Floats, NDArray[np.bool_]]]:
    """Yield the name of a warning, a figure of each step, and whether it is bad, shape (S,) each.

    A figure that is not known is NaN, and so not bad.
    """

    def figure(name: str) -> Floats:
        known = np.array([line.get(name) for line in steps], dtype=float)
        return moving_mean(known, max(SMOOTHED, len(steps) // 100))

    reward = figure("reward")
    yield "reward", reward, reward < 0.5 * _best(reward)
    entropy = figure("entropy")  # nats a token
    yield "entropy_falls", entropy, entropy < 0.1 * entropy[START]
    yield "entropy_rises", entropy, entropy > 3.0 * entropy[START]
    clipped = figure("clip_fraction")
    yield "clipping", clipped, clipped > 0.2
    jumped = clipped > np.fmax(0.05, 5.0 * clipped[START])  # which comes before a stall
    yield "clipping_jumps", clipped, jumped & (clipped <= 0.2)
    capped = figure("importance_truncated")
    yield "off_policy", capped, capped > 0.05
    gap = np.abs(figure("sampler_gap"))  # nats a token
    yield "sampler_gap", gap, gap > 0.1
    cut = figure("truncated")
    yield "truncated", cut, cut > np.fmin(0.5, np.fmax(0.1, 1.5 * cut[START]))
    # Nothing can be known about prompts that were never visited.
    unknown = np.array([(line.get("visited") or 1.0) < 0.99 for line in steps])
    skill = np.where(unknown, np.nan, figure("belief_skill"))
    yield "belief", skill, skill < 0
    uniform = figure("zero_variance_after")
    if config["group"]["size"] > 1 and config["advantage"].get("baseline") != "belief":
        yield "zero_variance", uniform, uniform > 0.5


def _best(values_S: Floats) -> Floats:
    return np.fmax.accumulate(np.nan_to_num(values_S))
