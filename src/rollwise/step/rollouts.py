"""A step's prompts, and the responses drawn for them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature

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
from rollwise.step.carried import Carried
from rollwise.step.cost import RolloutCost
from rollwise.step.episodes import Episode
from rollwise.step.recipe import StepRecipe
from rollwise.step.supply import PromptSupply, ask, beliefs, limited

log = logging.getLogger(__name__)

RollOut = Callable[..., RolloutCost]
"""Draws and grades responses until a session is done; its pools then hold responses (see
`rollwise.step.Response`). It is called with the `RolloutSession`, and for a step of so many tokens
or one that carries over (`StepRecipe.asks_again`) with the `PromptSupply` that adds prompts."""


@dataclass
class Rollouts:
    """The responses of one step.

    Attributes:
        session: Its pools are trained on.
        pilots: Pilot draws, by which the others were shared out; not trained on.
        cost: Of all rollouts, pilots included.
        carried: With `carry_over`, what goes on in the next step.
    """

    session: RolloutSession
    pilots: list[RolloutSession] = field(default_factory=list)
    cost: RolloutCost = field(default_factory=RolloutCost)
    carried: Carried | None = None

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
        """Return what each response to each prompt cost in tokens, in the order of `counts`."""
        found: dict[Key, list[int]] = {}
        for session in (*self.pilots, self.session):
            for key, pool in session.pools.items():
                prices = [Episode.of(response).price for response in pool.responses]
                found.setdefault(key, []).extend(price.tokens for price in prices)
        return list(found.values())


def draw_rollouts(
    recipe: StepRecipe,
    sampler: PromptSampler,
    roll_out: RollOut,
    step: int,
    carried: Carried | None = None,
) -> Rollouts:
    """Ask for a step's prompts, and sample them.

    With `unresolved="refill"`, prompts without signal are replaced by further ones until the batch
    is full, at most `refills` times; a batch that is still not full is trained on as it is (DAPO's
    dynamic sampling, arXiv 2503.14476, section 3.2). With `tokens`, prompts are asked for until
    these are spent.

    Args:
        recipe: How to sample.
        sampler: Chooses the prompts.
        roll_out: Draws and grades.
        step: The number of the step.
        carried: With `carry_over`, what the step before has left.

    Raises:
        TypeError: `roll_out` does not take the prompt supply that `tokens` and `carry_over` need.
    """
    if recipe.asks_again:
        return _draw_as_slots_get_free(recipe, sampler, roll_out, step, carried)
    keys = ask(sampler)
    if isinstance(recipe.allocation, GVM):
        return _draw_after_pilot(recipe, recipe.allocation, sampler, roll_out, step, keys)
    session = recipe.session(keys, step, **beliefs(recipe, sampler, keys))
    rollouts = Rollouts(session, cost=roll_out(session))
    if recipe.unresolved == "refill":
        _refill(recipe, sampler, roll_out, rollouts, len(keys))
    return rollouts


def _draw_as_slots_get_free(
    recipe: StepRecipe,
    sampler: PromptSampler,
    roll_out: RollOut,
    step: int,
    carried: Carried | None,
) -> Rollouts:
    """Begin with what was carried, or else with a whole batch, and ask for prompts as they end."""
    _check_takes_supply(roll_out)
    session = recipe.session([], step)
    if carried is None:
        keys = ask(sampler)
        session.add(keys, **beliefs(recipe, sampler, keys))
        carried = Carried(at_a_time=len(keys))
    else:
        carried.join(session)
    supply = PromptSupply(recipe, sampler, carried.at_a_time)
    cost = roll_out(session, supply)
    if recipe.carry_over and supply.carried is None:  # all prompts have ended
        supply.carried = Carried(carried.at_a_time)
    return Rollouts(session, cost=cost, carried=supply.carried)


def _check_takes_supply(roll_out: RollOut) -> None:
    try:
        signature(roll_out).bind("session", "supply")
    except TypeError:
        raise TypeError(
            "with tokens or carry_over, a step asks for prompts as slots get free: roll_out must "
            f"take a session and a PromptSupply, got {roll_out!r}"
        ) from None


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
        further = ask(sampler, missing, session.pools) if missing > 0 else []
        if not further:
            break
        session.add(further, **beliefs(recipe, sampler, further))
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
    budgets = limited(recipe, chosen, counts[counts > 0])
    believed = beliefs(recipe, sampler, chosen) | {"budgets": budgets}
    session = recipe.session(chosen, step, **believed)
    return Rollouts(session, pilots=[pilot], cost=cost + roll_out(session))


def _with_signal(session: RolloutSession) -> int:
    return sum(not pool.zero_variance for pool in session.pools.values())
