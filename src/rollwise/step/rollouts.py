"""A step's prompts, and the responses drawn for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollwise.prompts import PromptSampler
from rollwise.sampling import Allocation, FixedCount, Pool, RolloutSession, Rounds, draw_seed
from rollwise.sampling.draws import Key
from rollwise.step.asking import ask, session_arguments, shared_out
from rollwise.step.recipe import StepRecipe
from rollwise.step.response import RolloutCost

RollOut = Callable[[RolloutSession], RolloutCost]
"""Draws and grades responses until a session is done; its pools then hold `Response`s."""


@dataclass
class Rollouts:
    """The responses of one step.

    Attributes:
        session: Its pools are trained on.
        pilots: Draws by which the others were shared out: the sampler learns from them, but they
            are not trained on.
        cost: Of all rollouts, pilots included.
    """

    session: RolloutSession
    pilots: list[RolloutSession] = field(default_factory=list)
    cost: RolloutCost = field(default_factory=RolloutCost)

    @property
    def sessions(self) -> list[RolloutSession]:
        """All sessions, pilots first."""
        return [*self.pilots, self.session]

    @property
    def pools(self) -> list[Pool]:
        """The pools that are trained on, one for each prompt."""
        return list(self.session.pools.values())

    def counts(self) -> tuple[list[Key], list[int], list[int]]:
        """Return each prompt, and how many of all its responses were correct and drawn."""
        found: dict[Key, tuple[int, int]] = {}
        for session in self.sessions:
            for key, pool in session.pools.items():
                correct, drawn = found.get(key, (0, 0))
                found[key] = correct + pool.positives, drawn + len(pool)
        return list(found), [c for c, _ in found.values()], [n for _, n in found.values()]


def draw_rollouts(
    recipe: StepRecipe, sampler: PromptSampler, roll_out: RollOut, step: int
) -> Rollouts:
    """Ask for a step's prompts, and sample them.

    With `zero_variance="refill"`, prompts without signal are replaced by further ones, at most
    `refills` times (DAPO's dynamic sampling, arXiv 2503.14476, section 3.2).
    """
    keys = ask(sampler)
    if recipe.allocation is not None and recipe.pilot:
        return _draw_after_pilot(recipe, recipe.allocation, sampler, roll_out, step, keys)
    session = recipe.session(keys, step, **session_arguments(recipe, sampler, keys))
    rollouts = Rollouts(session, cost=roll_out(session))
    if recipe.zero_variance == "refill":
        _refill(recipe, sampler, roll_out, rollouts, len(keys))
    return rollouts


def _refill(
    recipe: StepRecipe, sampler: PromptSampler, roll_out: RollOut, rollouts: Rollouts, wanted: int
) -> None:
    """Sample further prompts until `wanted` pools carry signal, at most `refills` times."""
    session = rollouts.session
    for _ in range(recipe.refills):
        missing = wanted - sum(not pool.zero_variance for pool in rollouts.pools)
        more = missing > 0 and not sampler.exhausted
        further = ask(sampler, missing, session.pools) if more else []
        if not further:
            break
        session.add(further, **session_arguments(recipe, sampler, further))
        rollouts.cost += roll_out(session)


def _draw_after_pilot(
    recipe: StepRecipe,
    allocation: Allocation,
    sampler: PromptSampler,
    roll_out: RollOut,
    step: int,
    keys: Sequence[Key],
) -> Rollouts:
    """Draw a pilot for each prompt, and share out the step's draws by its pass rates.

    If no prompt gets a share, the pilot is the step.
    """
    pilot = RolloutSession(
        keys,
        FixedCount(recipe.pilot),
        Rounds(recipe.pilot, rounds=1),
        seed=draw_seed(recipe.seed, step, "pilot", 0),
        step=step,
        positive_threshold=recipe.positive_threshold,
        priors=session_arguments(recipe, sampler, keys).get("priors"),
    )
    cost = roll_out(pilot)
    pass_rates = [pool.positives / max(len(pool), 1) for pool in pilot.pools.values()]
    counts = shared_out(allocation, np.array(pass_rates))
    chosen = [key for key, count in zip(keys, counts, strict=True) if count]
    if not chosen:
        return Rollouts(pilot, cost=cost)
    arguments = session_arguments(recipe, sampler, chosen, counts[counts > 0])
    session = recipe.session(chosen, step, **arguments)
    return Rollouts(session, pilots=[pilot], cost=cost + roll_out(session))
