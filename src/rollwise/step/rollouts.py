"""A step's prompts, and the responses drawn for them."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from rollwise.prompts import PromptSampler
from rollwise.sampling import (
    GVM,
    FixedCount,
    Pool,
    RolloutSession,
    Rounds,
    draw_seed,
)
from rollwise.sampling.draws import Key
from rollwise.step.cost import RolloutCost
from rollwise.step.recipe import StepRecipe

log = logging.getLogger(__name__)

RollOut = Callable[[RolloutSession], RolloutCost]
"""Draws and grades responses until every prompt of a session has ended; its pools then hold
responses (see `rollwise.step.Response`)."""


@dataclass
class Rollouts:
    """The responses of one step.

    Attributes:
        session: Its pools are trained on.
        pilots: Pilot draws, by which the others were shared out; not trained on.
        cost: Of all rollouts, pilots included.
    """

    session: RolloutSession
    pilots: list[RolloutSession] = field(default_factory=list)
    cost: RolloutCost = field(default_factory=RolloutCost)

    @property
    def pools(self) -> list[Pool]:
        """The pools that are trained on, one for each prompt."""
        return list(self.session.pools.values())

    def counts(self) -> tuple[list[Key], list[int], list[int]]:
        """Return each prompt, and how many of all its responses were correct and drawn."""
        found: dict[Key, tuple[int, int]] = {}
        for session in (*self.pilots, self.session):
            for key, pool in session.pools.items():
                correct, drawn = found.get(key, (0, 0))
                found[key] = correct + pool.positives, drawn + len(pool)
        return list(found), [c for c, _ in found.values()], [n for _, n in found.values()]

    def lengths(self) -> list[list[int]]:
        """Return the number of tokens of each response to each prompt, in the order of `counts`."""
        found: dict[Key, list[int]] = {}
        for session in (*self.pilots, self.session):
            for key, pool in session.pools.items():
                found.setdefault(key, []).extend(len(each.tokens) for each in pool.responses)
        return list(found.values())


def draw_rollouts(
    recipe: StepRecipe, sampler: PromptSampler, roll_out: RollOut, step: int
) -> Rollouts:
    """Ask for a step's prompts, and sample them.

    With `unresolved="refill"`, prompts without signal are replaced by further ones until the batch
    is full, at most `refills` times; a batch that is still not full is trained on as it is (DAPO's
    dynamic sampling, arXiv 2503.14476, section 3.2).

    Args:
        recipe: How to sample.
        sampler: Chooses the prompts.
        roll_out: Draws and grades.
        step: The number of the step.
    """
    keys = _ask(sampler)
    if isinstance(recipe.allocation, GVM):
        return _draw_after_pilot(recipe, recipe.allocation, sampler, roll_out, step, keys)
    session = recipe.session(keys, step, **_beliefs(recipe, sampler, keys))
    rollouts = Rollouts(session, cost=roll_out(session))
    if recipe.unresolved == "refill":
        _refill(recipe, sampler, roll_out, rollouts, len(keys))
    return rollouts


def _ask(
    sampler: PromptSampler, count: int | None = None, exclude: Collection[Key] = ()
) -> list[Key]:
    """Ask for a step's prompts, or for `count` further ones.

    Raises:
        TypeError: The answer is no list of keys.
        ValueError: It has a prompt twice, or one of `exclude`; or it is empty, for a step.
    """
    answer: Any = sampler.ask(count, exclude=exclude) if exclude else sampler.ask()
    said = f"{type(getattr(sampler, 'sampler', sampler)).__name__}.ask returned"  # not `Retiring`
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise TypeError(f"{said} {answer!r}, which is no list of keys")
    keys = list(answer)
    if not (keys or exclude):
        raise ValueError(f"{said} no prompts for a step")
    seen: set[Any] = set(exclude)
    for key in keys:
        if not isinstance(key, str | Integral):
            raise TypeError(f"{said} {key!r}, which is no key: keys are strings and integers")
        if key in seen:
            raise ValueError(f"{said} {key!r} {'although excluded' if key in exclude else 'twice'}")
        seen.add(key)
    return keys


def _refill(
    recipe: StepRecipe,
    sampler: PromptSampler,
    roll_out: RollOut,
    rollouts: Rollouts,
    wanted: int,
) -> None:
    """Sample further prompts until `wanted` pools carry signal, at most `refills` times."""
    session = rollouts.session
    for _ in range(recipe.refills):
        missing = min(wanted - _with_signal(session), session.draws_left)
        further = _ask(sampler, missing, session.pools) if missing > 0 else []
        if not further:
            break
        session.add(further, **_beliefs(recipe, sampler, further))
        rollouts.cost += roll_out(session)
    if missing := wanted - _with_signal(session):
        log.warning(
            "step %d: %d groups are missing from the batch after refilling", session.step, missing
        )


def _draw_after_pilot(
    recipe: StepRecipe,
    allocation: GVM,
    sampler: PromptSampler,
    roll_out: RollOut,
    step: int,
    keys: Sequence[Key],
) -> Rollouts:
    """Draw a pilot for each prompt, and share out the step's draws by its pass rates (GVM).

    If no prompt has a correct response, none gets further draws.
    """
    pilot = RolloutSession(
        keys,
        FixedCount(allocation.pilot),
        Rounds(allocation.pilot, rounds=1),
        seed=draw_seed(recipe.seed, step, "pilot", 0),
        step=step,
        positive_threshold=recipe.positive_threshold,
    )
    cost = roll_out(pilot)
    pass_rates = [pool.positives / max(len(pool), 1) for pool in pilot.pools.values()]
    counts = allocation.counts(pass_rates)
    chosen = [key for key, count in zip(keys, counts, strict=True) if count]
    if not chosen:
        return Rollouts(pilot, cost=cost)
    beliefs = _beliefs(recipe, sampler, chosen) | {"budgets": counts[counts > 0]}
    session = recipe.session(chosen, step, **beliefs)
    return Rollouts(session, pilots=[pilot], cost=cost + roll_out(session))


def _beliefs(recipe: StepRecipe, sampler: PromptSampler, keys: Sequence[Key]) -> dict[str, Any]:
    """Ask the sampler what it believes of the prompts, if the recipe uses it."""
    beliefs: dict[str, Any] = {}
    if recipe.uses_priors:
        beliefs["priors"] = sampler.pass_rate_priors(keys)
    if recipe.allocation is not None and not isinstance(recipe.allocation, GVM):
        beliefs["budgets"] = recipe.allocation.counts(sampler.expected_pass_rates(keys))
    return beliefs


def _with_signal(session: RolloutSession) -> int:
    return sum(not pool.zero_variance for pool in session.pools.values())
