"""Figures of a step: how good the policy is, how much signal there was, what it cost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs.belief import priors_from
from rollwise.beliefs.state import metrics_of
from rollwise.prompts import PromptSampler
from rollwise.sampling import Pool, Score, has_zero_variance
from rollwise.sampling.draws import Key
from rollwise.sampling.score import acc_of
from rollwise.step.asking import expected_of
from rollwise.step.groups import TrainedGroup
from rollwise.step.response import Figures
from rollwise.step.rollouts import Rollouts

PARTS = 8
"""The number of parts of a step's prompts over which beliefs and pass rates are averaged."""

Ledger = dict[str, dict[str, int]]
"""`draws` and `tokens` by where they went, and `truncated`: how many draws, and tokens, of those
in pools were cut at the limit."""

PLACES = ("trained", "spare", "zero_variance", "surplus", "pilot", "failed")
"""Where a draw goes: it is trained on (`trained`); it is in the pool of a trained group, but not
chosen, or its advantage is 0 (`spare`); all advantages of its pool are 0 (`zero_variance`); its
prompt ended without it (`surplus`); a pilot drew it (`pilot`); the attempt failed (`failed`)."""


def rollout_metrics(
    rollouts: Rollouts, groups: Sequence[TrainedGroup], size: int
) -> dict[str, Any]:
    """Summarize the rollouts of a step and their groups, dropped ones included.

    How good the policy is (`reward`, `entropy`, `response_tokens`, `truncated`) is measured on the
    first draws of each prompt alone: `size`, or as many as every prompt has whatever its rewards.
    They are an ordinary sample; a pool that stopped because of what it held is not, nor are the
    pools of prompts that a pilot chose, so the pilot's are measured.
    """
    session, pools = rollouts.session, rollouts.pools
    sampled = [pool for pilot in rollouts.pilots for pool in pilot.pools.values()] or pools
    certain = [int(p.stopping.minimum_draws[0, 0]) for p in sampled if p.stopping and len(p)]
    first = min([size, *certain])
    drawn_P = np.array([len(pool) for pool in pools], dtype=int)
    piloted = sum(len(pool) for pool in sampled) if rollouts.pilots else 0
    draws = int(drawn_P.sum()) + session.surplus + piloted
    exits = Counter(pool.exit_reason for pool in pools)
    rewards = [pool.scores[:first] for pool in sampled]
    scores = [reward for of_prompt in rewards for reward in of_prompt]
    responses = [r.figures for pool in sampled for r in pool.responses[:first]]
    return {
        "reward": _mean(scores),
        **_parts(scores),
        "zero_variance_first": _mean([has_zero_variance(of_prompt) for of_prompt in rewards]),
        "zero_variance_after": _mean([group.members.zero_variance for group in groups]),
        "prompts": len(pools),
        "trained_groups": sum(not group.dropped for group in groups),
        "draws": draws,
        "draws_per_prompt": draws / max(len(sampled), 1),
        "draws_by_round": session.schedule.draws_by_round(drawn_P),
        "surplus_draws": session.surplus,
        "tokens": rollouts.cost.tokens,
        "exits": {reason: exits[reason] for reason in ("satisfied", "exhausted", "futile")},
        "failed_draws": sum(each.failures for each in rollouts.sessions),
        "lost_draws": sum(each.lost for each in rollouts.sessions),
        **_entropy(responses),
        "response_tokens": _mean([response.tokens for response in responses]),
        "truncated": _mean([response.truncated for response in responses]),
        **_episodes(rollouts, responses),
        "ledger": step_ledger(rollouts, groups),
    }


def _parts(rewards: Sequence[float]) -> dict[str, dict[str, float]]:
    """Return the means of the rewards' parts, and of `acc` where that is another number."""
    scores = [reward for reward in rewards if isinstance(reward, Score)]
    names = dict.fromkeys(name for score in scores for name in score.parts)
    means = {n: _mean([score.parts[n] for score in scores if n in score.parts]) for n in names}
    if any(score.acc != score for score in scores):
        means["acc"] = _mean([*map(acc_of, rewards)])
    return {"rewards": means} if means else {}


def _episodes(
    rollouts: Rollouts, first_draws: Sequence[Figures]
) -> dict[str, float | dict[str, int]]:
    """Return the turns of the first draws, and the ends of all; nothing for single responses."""
    responses = [response.figures for pool in rollouts.pools for response in pool.responses]
    ends = Counter[str](response.end for response in responses if response.turns is not None)
    if not ends:
        return {}
    turns = _mean([response.turns for response in first_draws])
    return {"turns": turns, "ends": {"done": 0, "truncated": 0, "failed": 0, **ends}}


def _entropy(first_draws: Sequence[Figures]) -> dict[str, float]:
    """Estimate the policy's entropy per token, in nats; nothing if no probability is known."""
    known = [response for response in first_draws if not np.isnan(response.surprisal)]
    if first_draws and not known:
        return {}
    tokens = sum(response.learned for response in known)
    return {"entropy": sum(response.surprisal for response in known) / max(tokens, 1)}


def group_ledger(group: TrainedGroup) -> Ledger:
    """Count where the draws of a prompt's pool went; places to which none went are left out."""
    figures = [response.figures for response in group.pool.responses]
    cut = [response.tokens for response in figures if response.truncated]
    draws, tokens = Counter[str](), Counter[str]()
    rest = "spare" if group.teaches else "zero_variance"
    trained = set(group.members.indices[group.advantages != 0].tolist()) if group.teaches else ()
    for place, response in enumerate(figures):
        where = "trained" if place in trained else rest
        draws[where] += 1
        tokens[where] += response.tokens
    return {"draws": draws, "tokens": tokens, "truncated": {"draws": len(cut), "tokens": sum(cut)}}


def step_ledger(rollouts: Rollouts, groups: Iterable[TrainedGroup]) -> Ledger:
    """Add up the ledgers of a step's groups (`group_ledger`), and what is in no pool.

    The draws add up to all draws and failed attempts of the step, and the tokens to all its tokens:
    those in no pool are of surplus draws.
    """
    session, cost = rollouts.session, rollouts.cost
    pools = [pool for pilot in rollouts.pilots for pool in pilot.pools.values()]
    piloted = [r.figures.tokens for pool in pools for r in pool.responses]
    failed = sum(each.failures for each in rollouts.sessions)
    draws = {"surplus": session.surplus, "failed": failed, "pilot": len(piloted)}
    tokens = {"failed": cost.failed_tokens, "pilot": sum(piloted)}
    ledger: Ledger = {
        "draws": dict.fromkeys(PLACES, 0) | draws,
        "tokens": dict.fromkeys(PLACES, 0) | tokens,
        "truncated": {"draws": 0, "tokens": 0},
    }
    for of_group in map(group_ledger, groups):
        for kind, counts in ledger.items():
            for name, count in of_group[kind].items():
                counts[name] += count
    ledger["tokens"]["surplus"] = cost.tokens - sum(ledger["tokens"].values())
    return ledger


def belief_metrics(
    sampler: PromptSampler, keys: Sequence[Key], correct: Sequence[int], drawn: Sequence[int]
) -> dict[str, Any]:
    """Compare what a sampler believed of a step's prompts, before it is told, with their results.

    Averages of the expected pass rate over up to 8 equal parts of the prompts, in order of what was
    believed; and `belief_skill` (`brier_skill`).
    """
    correct_P, drawn_P = np.asarray(correct), np.asarray(drawn)
    expected_P = expected_of(sampler, keys)
    figures: dict[str, Any] = {"pass_rate_by_expected": _by(expected_P, correct_P, drawn_P)}
    skill = brier_skill(expected_P, correct_P, drawn_P)
    if not np.isnan(skill):
        figures["belief_skill"] = skill
    return figures


def tell(
    sampler: PromptSampler, keys: Sequence[Key], correct: Sequence[int], drawn: Sequence[int]
) -> dict[str, Any]:
    """Tell a sampler how many responses to a step's prompts were correct; returns its metrics.

    These are what it had believed of the prompts (`belief_metrics`), and its own metrics after.
    """
    believed = belief_metrics(sampler, keys, correct, drawn)
    sampler.tell(keys, correct=correct, drawn=drawn)
    return believed | metrics_of(sampler)


def visit_rows(
    sampler: PromptSampler, pools: Sequence[Pool], trained: Sequence[int]
) -> list[dict[str, Any]]:
    """Describe each prompt of a step in a row, before the sampler is told the results.

    `expected` and its `strength` in pseudo-counts are the sampler's, None where it expects nothing;
    `trained` holds how many responses of each are trained on.
    """
    keys: list[Key] = [pool.key for pool in pools]
    expected_P = expected_of(sampler, keys)
    priors_P2 = priors_from(sampler, "pass_rate_priors", len(keys), keys)
    return [
        {
            "key": str(pool.key),
            "correct": int(pool.positives),
            "drawn": len(pool),
            "reward": float(np.mean(pool.rewards)) if len(pool) else None,
            "expected": None if np.isnan(expected) else round(float(expected), 4),
            "strength": None if np.isnan(expected) else round(float(strength), 2),
            "trained": int(count),
            "exit_reason": pool.exit_reason,
        }
        for pool, expected, strength, count in zip(
            pools, expected_P, priors_P2.sum(axis=1), trained, strict=True
        )
    ]


def brier_skill(expected_P: ArrayLike, correct_P: ArrayLike, drawn_P: ArrayLike) -> float:
    """Score expected pass rates by the responses that came: 1 − B/B₀ (Brier 1950).

    B is the mean square of (expected − correct) over all responses, and B₀ the same with one rate
    for all: the share of correct ones. So 1 is perfect, 0 no better than knowing the mean, and less
    is worse. Chance limits it: pass rates known exactly score 1 − E[p(1 − p)]/(p̄(1 − p̄)).

    Arrays of shape (P,), NaN where nothing is expected. The score is NaN where nothing was
    expected, or all responses are correct, or none.
    """
    expected, correct, drawn = (np.asarray(x, float) for x in (expected_P, correct_P, drawn_P))
    known = (drawn > 0) & ~np.isnan(expected)
    expected, correct, drawn = expected[known], correct[known], drawn[known]
    total = drawn.sum()
    rate = correct.sum() / total if total else 0.0
    if not 0 < rate < 1:
        return float("nan")
    squares = correct * (1 - expected) ** 2 + (drawn - correct) * expected**2
    return float(1 - squares.sum() / total / (rate * (1 - rate)))


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


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
