"""What one step's rollouts say: signal, cost and the state of the policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.engines import Completion
from rollwise.prompts import BatchSampler, Retiring
from rollwise.sampling import Pool, Rounds, Schedule, is_uniform
from rollwise.sampling.pool import Key
from rollwise.training.batches import Batch
from rollwise.training.groups import TrainedGroup

PARTS = 8
"""Parts of a step's prompts that beliefs and pass rates are averaged over."""


@dataclass(frozen=True)
class ResponseFigures:
    """What the metrics need of a response.

    Attributes:
        tokens: How many.
        surprisal: The sum of −log p over them, in nats.
        truncated: Whether it was cut at the limit of new tokens.
    """

    tokens: int
    surprisal: float
    truncated: bool

    @classmethod
    def of(cls, response: Completion) -> "ResponseFigures":
        """Take the figures of a completion."""
        surprisal = -float(np.sum(response.logprobs, dtype=np.float64))
        return cls(len(response.tokens), surprisal, response.truncated)


def rollout_metrics(batch: Batch, groups: Sequence[TrainedGroup], first: int) -> dict[str, Any]:
    """Summarise the rollouts of a step (see `pool_metrics`).

    Args:
        batch: Its pools hold completions.
        groups: What was made of them.
        first: The draws of a prompt that count as first.
    """
    session = batch.session
    pools = list(session.pools.values())
    return pool_metrics(
        pools,
        [ResponseFigures.of(response) for pool in pools for response in pool.responses[:first]],
        uniform_groups=[group.members.uniform for group in groups],
        trained_groups=sum(not group.dropped for group in groups),
        first=first,
        schedule=session.schedule,
        surplus=session.surplus,
        piloted=sum(len(pool) for pilot in batch.pilots for pool in pilot.pools.values()),
        failures=session.failures,
        lost=session.lost,
        tokens=batch.cost.tokens,
    )


def pool_metrics(
    pools: Sequence[Pool],
    first_draws: Sequence[ResponseFigures],
    *,
    uniform_groups: Sequence[bool],
    trained_groups: int,
    first: int,
    schedule: Schedule,
    surplus: int,
    piloted: int = 0,
    failures: int = 0,
    lost: int = 0,
    tokens: int,
) -> dict[str, Any]:
    """Summarise the pools of a step.

    How good the policy is (`reward`, `entropy`, `response_tokens`, `truncated`) is said by the
    first draws of each prompt alone: they are an ordinary sample, which a pool that stopped
    because of what it held is not.

    Args:
        pools: One for each prompt.
        first_draws: The first responses of each.
        uniform_groups: Whether the members of each prompt's group have one reward.
        trained_groups: Groups that are trained on.
        first: The draws of a prompt that count as first.
        schedule: By which they were drawn.
        surplus: Draws beyond a prompt's exit.
        piloted: Draws of pilots, which are in no pool.
        failures: Draws that failed, attempts counted one by one.
        lost: Draws that were given up.
        tokens: Of all responses, surplus included.
    """
    draws = sum(len(pool) for pool in pools) + surplus + piloted
    exits = Counter(pool.exit_reason for pool in pools)
    entropy = sum(r.surprisal for r in first_draws) / max(sum(r.tokens for r in first_draws), 1)
    return {
        "reward": _mean([reward for pool in pools for reward in pool.rewards[:first]]),
        "uniform_first": _mean([is_uniform(pool.rewards[:first]) for pool in pools]),
        "uniform_after": _mean(uniform_groups),
        "prompts": len(pools),
        "trained_groups": trained_groups,
        "draws": draws,
        "draws_per_prompt": draws / max(len(pools), 1),
        "draws_by_round": _draws_by_round(pools, schedule),
        "surplus_draws": surplus,
        "tokens": tokens,
        "exits": {reason: exits[reason] for reason in ("satisfied", "exhausted", "futile")},
        "failed_draws": failures,
        "lost_draws": lost,
        "entropy": entropy,
        "response_tokens": _mean([response.tokens for response in first_draws]),
        "truncated": _mean([response.truncated for response in first_draws]),
    }


def belief_metrics(
    sampler: BatchSampler | Retiring,
    keys: Sequence[Key],
    correct: Sequence[int],
    drawn: Sequence[int],
) -> dict[str, Any]:
    """Set what a sampler believed of a step's prompts beside what came of them.

    Averages over up to 8 equal parts of the prompts, in order of what was believed: the expected
    pass rate, and the difficulty where the sampler has one.

    Args:
        sampler: Before it is told.
        keys: The prompts.
        correct: Correct responses of each, shape (P,).
        drawn: All responses of each, shape (P,).
    """
    correct_P, drawn_P = np.asarray(correct), np.asarray(drawn)
    figures = {"pass_rate_by_expected": _by(sampler.expected_pass_rates(keys), correct_P, drawn_P)}
    difficulties = sampler.difficulties(keys)
    if difficulties is not None:
        figures["pass_rate_by_difficulty"] = _by(difficulties, correct_P, drawn_P)
    return figures


def _by(
    believed_P: NDArray[np.float64], correct_P: NDArray[np.int64], drawn_P: NDArray[np.int64]
) -> list[list[float]]:
    """Pairs of what was believed and the pass rate, each averaged over a part of the prompts."""
    known = np.flatnonzero((drawn_P > 0) & ~np.isnan(believed_P))
    order = known[np.argsort(believed_P[known], kind="stable")]
    parts = [part for part in np.array_split(order, PARTS) if len(part)]
    return [
        [float(believed_P[part].mean()), float(correct_P[part].sum() / drawn_P[part].sum())]
        for part in parts
    ]


def _draws_by_round(pools: Sequence[Pool], schedule: Schedule) -> list[float]:
    """Draws a prompt in each round, averaged over all prompts."""
    if not isinstance(schedule, Rounds):
        return []
    size = schedule.size
    drawn_P = np.array([len(pool) for pool in pools])
    rounds = range(schedule.rounds)
    return [float(np.clip(drawn_P - r * size, 0, size).mean()) for r in rounds]


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
