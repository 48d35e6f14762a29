"""What a person who reads the metrics of a run would warn of: since which step, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.records import Row, RunFolder
from rollwise.records.final import damaged
from rollwise.reports.charts import SMOOTHED, moving_mean

FEWEST_STEPS = 10
"""Fewer steps say nothing of a trend."""

NOTHING_TRAINED = 3
"""Steps in a row without a trained group that are worth a warning."""

COLLAPSED = 0.5
"""The mean reward has collapsed where it is below this share of its best."""

ENTROPY_FALLEN, ENTROPY_RISEN = 0.2, 3.0
"""Shares of the entropy at the beginning."""

CLIPPED, WEIGHTS_AT_CAP, GAP = 0.2, 0.05, 0.1
"""Share of clipped tokens; share of importance weights at the cap; nats a token."""

TRUNCATED, TRUNCATION_RISEN, MOSTLY = 0.1, 1.5, 0.5
"""Share of truncated responses, how many times that at the beginning, and what is too much."""

CLIP_JUMP, TIMES_CLIPPED = 0.05, 5.0
"""Share of clipped tokens, and how many times that at the beginning, that come before a stall."""

WITHOUT_SIGNAL = 0.5
"""Share of groups."""

VISITED = 0.99
"""Share of the prompts from which on beliefs are judged."""

FAILED = 0.01
"""Share of draws."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """Something to look at.

    Attributes:
        step: Where it begins.
        title: In a few words.
        what: With figures.
        advice: What to do.
        chart: The id of the chart that shows it; "" for none.
    """

    step: int
    title: str
    what: str
    advice: str
    chart: str = ""


def findings_of(folder: RunFolder) -> list[Finding]:
    """Look for what goes wrong in a run, and for what is missing or damaged of its records.

    Raises:
        RunError: There is no run in the folder.
    """
    found = findings(folder.read_metrics(), folder.read_config())
    if names := damaged(folder):
        what = f"{', '.join(names)} is missing, or is not what was written."
        advice = "Put it back from a copy: what is shown of this run is not all, or is wrong."
        found.insert(0, Finding(0, "Records are damaged", what, advice))
    return found


def findings(lines: Sequence[Row], config: Mapping[str, Any]) -> list[Finding]:
    """Look for what goes wrong in a run, in the order in which it began.

    A trend counts if it lasts to the newest step; it begins where it has held since. Figures of
    steps are moving means, as in the charts.

    Args:
        lines: The metrics of the run.
        config: Its settings.
    """
    steps = [line for line in lines if line["step"] > 0]
    found = [*_collapse(lines), *_counts(steps), *_untrained(steps, config)]
    if len(steps) >= FEWEST_STEPS:
        found += _trends(steps, config)
    return sorted(found, key=lambda finding: finding.step)


def _collapse(lines: Sequence[Row]) -> Iterator[Finding]:
    """Held-out accuracy is surely below its best: the intervals do not meet."""
    evaluated = [line for line in lines if "heldout" in line]
    if len(evaluated) < 2:
        return
    name = next(iter(evaluated[0]["heldout"]))
    figures = [line["heldout"][name] for line in evaluated]
    best = max(range(len(figures)), key=lambda at: figures[at]["value"])
    low = figures[best]["low"]
    below = [at > best and figure["high"] < low for at, figure in enumerate(figures)]
    if below[-1]:
        begun = len(below) - [*reversed(below), False].index(False)
        yield Finding(
            evaluated[begun]["step"],
            "Held-out accuracy has fallen",
            f"{name} is {figures[-1]['value']:.3f}; it was {figures[best]['value']:.3f} at step "
            f"{evaluated[best]['step']}, and the intervals do not meet.",
            "Go back to the checkpoint before it, and lower `learner.learning_rate`.",
            "heldout",
        )


def _counts(steps: Sequence[Row]) -> Iterator[Finding]:
    """Failures, which count wherever they were."""
    draws = max(1, sum(line.get("draws", 0) for line in steps))
    for name, title, share, what, advice in (
        (
            "grader_failures",
            "The grader fails",
            FAILED,
            "responses got no reward because the grader failed on them",
            "Read the log for the reason; `grading.timeout` may be too short. A failed response "
            "counts as incorrect, which teaches against what it did.",
        ),
        (
            "lost_draws",
            "Draws are lost",
            FAILED,
            "draws were given up after repeated failures",
            "Read the log of the engine: it may be out of memory, or a server overloaded.",
        ),
        (
            "skipped_updates",
            "Updates are skipped",
            0.0,
            "updates had a gradient that is not finite",
            "Lower `learner.learning_rate`.",
        ),
    ):
        counts = [line.get(name) or 0 for line in steps]
        total = sum(counts)
        if total and total >= share * draws:
            first = next(line["step"] for line, count in zip(steps, counts, strict=True) if count)
            noun = what if total > 1 else what.replace("responses", "response", 1)
            yield Finding(first, title, f"{total:,} {noun}.", advice)


def _untrained(steps: Sequence[Row], config: Mapping[str, Any]) -> Iterator[Finding]:
    """Find that the newest steps trained on no group, since the first of them."""
    idle = [line.get("trained_groups") == 0 for line in steps]
    since = len(idle) - [*reversed(idle), False].index(False)
    if len(idle) - since >= NOTHING_TRAINED:
        yield Finding(
            steps[since]["step"],
            "No group is trained on",
            f"None was in the last {len(idle) - since} steps, so the model did not change.",
            "All responses to a prompt have one reward. Read some and how they are graded; "
            + _more_variance(config),
            "zero_variance",
        )


def _more_variance(config: Mapping[str, Any]) -> str:
    """Advise how to get groups with rewards that differ, by what a run does not do yet."""
    drawn = "" if config["exit"]["type"] == "balanced" else 'set `exit.type = "balanced"`, '
    return (
        f"{drawn}choose prompts by pass rate (`prompts.type`), or take problems that are neither "
        "too easy nor too hard."
    )


def _trends(steps: Sequence[Row], config: Mapping[str, Any]) -> Iterator[Finding]:
    """What has lasted to the newest step, since the step from which on it has."""
    for bad_S, chart, title, what, advice in _rules(steps, config):
        bad_S[: FEWEST_STEPS - 1] = False  # the first means are of few steps
        if bad_S[-1]:
            first = len(bad_S) - int(np.argmin([*bad_S[::-1], False]))
            yield Finding(steps[first]["step"], title, what, advice, chart)


def _rules(
    steps: Sequence[Row], config: Mapping[str, Any]
) -> Iterator[tuple[NDArray[np.bool_], str, str, str, str]]:
    """Say of each step whether it is bad, shape (S,), with chart, title, figures and advice.

    A figure that is not known is NaN, and so not bad.
    """

    def figure(name: str) -> Floats:
        values = [line.get(name) for line in steps]
        known = np.array([np.nan if value is None else value for value in values], dtype=float)
        return moving_mean(known, max(SMOOTHED, len(steps) // 100))

    reward = figure("reward")
    best = np.fmax.accumulate(np.nan_to_num(reward))
    yield (
        reward < COLLAPSED * best,
        "reward",
        "Reward has collapsed",
        f"It is {reward[-1]:.3f}, and was {best[-1]:.3f}.",
        "Go back to a checkpoint from before, and lower `learner.learning_rate`; a sampler that "
        "prefers hard prompts lowers it too, so compare with the held-out accuracy.",
    )
    entropy = figure("entropy")
    start = entropy[FEWEST_STEPS - 1]
    nats = f"{entropy[-1]:.3f} nats a token, and {start:.3f} at the beginning"
    yield (
        entropy < ENTROPY_FALLEN * start,
        "entropy",
        "Entropy is falling away",
        f"{nats}: responses to a prompt become alike.",
        "Raise `learner.clip_high` or `learner.entropy_coefficient`, or lower "
        "`learner.learning_rate`; see whether held-out pass@k still rises.",
    )
    yield (
        entropy > ENTROPY_RISEN * start,
        "entropy",
        "Entropy is rising",
        f"{nats}: the policy is coming apart.",
        "Lower `learner.learning_rate`, and set `learner.entropy_coefficient` to 0.",
    )
    clipped = figure("clip_fraction")
    yield (
        clipped > CLIPPED,
        "clipping",
        "Much is clipped",
        f"{100 * clipped[-1]:.0f} % of the tokens do not teach, because the policy has moved too "
        "far since they were drawn.",
        "Lower `learner.mini_batches` or `learner.learning_rate`.",
    )
    capped = figure("importance_truncated")
    yield (
        capped > WEIGHTS_AT_CAP,
        "clipping",
        "Responses are off-policy",
        f"{100 * capped[-1]:.0f} % of the importance weights are at the cap.",
        "Lower `learner.learning_rate`; under verl's asynchronous trainers also "
        "`trainer.v1.sampler.max_off_policy_threshold`.",
    )
    gap = np.abs(figure("sampler_gap"))
    yield (
        gap > GAP,
        "",
        "Engine and learner disagree",
        f"Their log-probabilities differ by {gap[-1]:.2f} nats a token.",
        "Check that both have the same weights, precision and temperature.",
    )
    yield (
        (clipped > np.fmax(CLIP_JUMP, TIMES_CLIPPED * clipped[FEWEST_STEPS - 1]))
        & (clipped <= CLIPPED),
        "clipping",
        "Clipping has jumped",
        f"{100 * clipped[-1]:.1f} % of the tokens are clipped, and "
        f"{100 * clipped[FEWEST_STEPS - 1]:.1f} % at the beginning; some runs stall after that.",
        "Watch the reward, and lower `learner.learning_rate` if it falls.",
    )
    cut = figure("truncated")
    begun = cut[FEWEST_STEPS - 1]
    yield (
        cut > np.fmin(MOSTLY, np.fmax(TRUNCATED, TRUNCATION_RISEN * begun)),
        "truncated",
        "Many responses are cut",
        f"{100 * cut[-1]:.0f} % of the responses are cut at the limit, and {100 * begun:.0f} % at "
        "the beginning; a cut response seldom has an answer.",
        "Raise `engine.max_new_tokens`; where responses grow and do not get better, read some.",
    )
    # Of prompts that were never visited nothing can be known.
    unknown = np.array([(line.get("visited") or 1.0) < VISITED for line in steps])
    skill = np.where(unknown, np.nan, figure("belief_skill"))
    yield (
        skill < 0,
        "belief",
        "Beliefs are stale",
        f"They score {skill[-1]:.2f}: one rate for all prompts of a step would be better.",
        'Set `belief.type = "logit_kalman"`, which follows a policy that improves.',
    )
    alone = config["group"]["size"] == 1 or config["advantage"].get("baseline") == "belief"
    uniform = figure("zero_variance_after")
    if not alone:
        yield (
            uniform > WITHOUT_SIGNAL,
            "zero_variance",
            "Most groups teach nothing",
            f"{100 * uniform[-1]:.0f} % of the groups have one reward throughout.",
            "To have groups whose rewards differ, " + _more_variance(config),
        )
