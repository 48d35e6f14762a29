"""What a person who reads the metrics of a run would warn of: since which step, and what to do."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.records import Row, flatten
from rollwise.reports.charts import SMOOTHED, Floats, described, evenly, moving_mean

FEWEST_STEPS = 10
"""Fewer steps say nothing of a trend."""

LOOKED_AT = 5
"""Steps between two looks at what goes wrong, while a run is under way."""

MOST_LOOKS = 500
"""The most looks that are taken again at a finished run."""

START = FEWEST_STEPS - 1
"""The place of the step whose figures stand for the beginning."""

UNMOVED_STEPS, UNMOVED = 20, 0.03
"""A policy hardly moves if it changes by less in so many steps, in nats a token, added up."""

NOTHING_TRAINED = 3
"""Steps in a row without a trained group that are worth a warning."""

FAILED = {"grader_failures": 0.01, "lost_draws": 0.01, "skipped_updates": 0.0, "unanswered": 0.5}
"""Shares of the draws from which failures are worth a warning."""


@dataclass(frozen=True)
class Finding:
    """Something to look at: where it begins, what it is, what to do, the id of its chart."""

    step: int
    title: str
    what: str
    advice: str
    chart: str = ""


def findings(lines: Sequence[Row], config: Mapping[str, Any]) -> list[Finding]:
    """Look for what goes wrong in a run with these metrics and settings, in the order it began.

    A trend counts if it lasts to the newest step; it begins where it has held since. Figures of
    steps are moving means, as in the charts.
    """
    steps = [line for line in lines if line["step"] > 0]
    found = [*_held_out(lines), *_failures(steps)]
    evaluated = [next(iter(line["heldout"].values())) for line in lines if "heldout" in line]
    has_risen = bool(evaluated) and evaluated[-1]["low"] > evaluated[0]["high"]
    if len(steps) >= FEWEST_STEPS:
        found += _trends(steps, config, has_risen)
    set_so = {f"`{name} = {value}`" for name, value in flatten(config, ".").items()}
    advised = (replace(each, advice=_without(set_so, each.advice)) for each in found)
    return sorted(advised, key=lambda finding: finding.step)


def _without(set_so: set[str], advice: str) -> str:
    """Leave out the sentences of advice that name a setting as it is set already."""
    sentences = re.split(r"(?<=[.]) ", advice)
    return " ".join(
        s for s in sentences if set_so.isdisjoint(re.findall("`[^`]*`", s.replace('"', "")))
    )


def is_looked_at(line: Row) -> bool:
    """Whether a run is looked at when this line is its newest."""
    return line["step"] == 1 or line["step"] % LOOKED_AT == 0 or "heldout" in line


def passed(
    lines: Sequence[Row], config: Mapping[str, Any], current: Sequence[Finding]
) -> list[Finding]:
    """Return what was warned of while the run was under way, and is not among the `current`."""
    titles = {finding.title for finding in current}
    found: dict[str, Finding] = {}
    looks = [at for at, line in enumerate(lines, 1) if is_looked_at(line)]
    for place in evenly(len(looks), MOST_LOOKS):
        for finding in findings(lines[: looks[place]], config):
            if finding.title not in titles:
                found.setdefault(finding.title, finding)
    return list(found.values())


def _finding(name: str, line: Row, **figures: Any) -> Finding:
    texts = described("findings")[name]
    what = texts["what"].format(**figures)
    return Finding(line["step"], texts["title"], what, texts["advice"], texts.get("chart", ""))


def _begun(bad: Sequence[bool] | NDArray[np.bool_]) -> int:
    """Return the place from which all are bad."""
    return len(bad) - [*reversed(bad), False].index(False)


def _held_out(lines: Sequence[Row]) -> Iterator[Finding]:
    """Held-out figures are surely below their best: the intervals do not meet.

    avg@k, or else pass@k, which falls where a policy forgets what it rarely did.
    """
    evaluated = [line for line in lines if "heldout" in line]
    means: list[float] = []
    for metric in [*evaluated[0]["heldout"]] if evaluated else ():
        figures = [line["heldout"][metric] for line in evaluated]
        best = max(range(len(figures)), key=lambda at: figures[at]["value"])
        below = [at > best and f["high"] < figures[best]["low"] for at, f in enumerate(figures)]
        if metric.startswith("avg@"):
            means = [figure["value"] for figure in figures]
        elif means[-1] < means[best]:
            continue
        if below[-1]:
            values = {"now": figures[-1]["value"], "best": figures[best]["value"]}
            at, since = evaluated[best]["step"], evaluated[_begun(below)]
            name = "heldout" if metric.startswith("avg@") else "narrowed"
            yield _finding(name, since, metric=metric, at=at, **values)
            return


def _failures(steps: Sequence[Row]) -> Iterator[Finding]:
    draws = sum(line.get("draws", 0) for line in steps)
    for name, share in FAILED.items():
        failed = [line for line in steps if line.get(name)]
        total = sum(line[name] for line in failed)
        if failed and total >= share * draws:
            yield _finding(name, failed[0], total=total, draws=draws)
    since = _begun([line.get("trained_groups") == 0 for line in steps])
    idle = len(steps) - since
    if idle >= NOTHING_TRAINED:
        yield _finding("untrained", steps[since], steps=idle)


def _trends(steps: Sequence[Row], config: Mapping[str, Any], has_risen: bool) -> Iterator[Finding]:
    """What has lasted to the newest step, from the step where it began."""
    for name, values_S, bad_S in _rules(steps, config, has_risen):
        bad_S[:START] = False  # the first means are of few steps
        if bad_S[-1]:
            now, begun = values_S[-1], values_S[START]
            yield _finding(
                name,
                steps[_begun(bad_S)],
                rate=config["learner"]["learning_rate"],
                now=now,
                begun=begun,
                best=_best(values_S)[-1],
                percent=100 * now,
                percent_begun=100 * begun,
            )


def _rules(
    steps: Sequence[Row], config: Mapping[str, Any], has_risen: bool
) -> Iterator[tuple[str, Floats, NDArray[np.bool_]]]:
    """Yield name, figure and badness of each step, shape (S,); unknown figures are NaN."""

    def figure(name: str, leave_out: int = 0) -> Floats:
        known = np.array([line.get(name) for line in steps], dtype=float)
        known[:leave_out] = np.nan
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
    skill = np.where(unknown, np.nan, figure("belief_skill", leave_out=1))
    yield "belief", skill, skill < 0
    if not has_risen:
        moved = figure("policy_change")  # nats a token and step
        is_known = np.arange(len(steps)) >= UNMOVED_STEPS - 1
        yield "unmoved", moved, is_known & (moved * UNMOVED_STEPS < UNMOVED)
    uniform = figure("zero_variance_after")
    if config["group"]["size"] > 1 and config["advantage"].get("baseline") != "belief":
        yield "zero_variance", uniform, uniform > 0.5


def _best(values_S: Floats) -> Floats:
    return np.fmax.accumulate(np.nan_to_num(values_S))
