"""Where a step's prompts come from: all at once, or one by one as slots get free."""

import logging
import math
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.prompts import PromptSampler
from rollwise.sampling import GVM, Pool, RolloutSession
from rollwise.sampling.draws import Key
from rollwise.step.carried import Carried
from rollwise.step.episodes import Episode
from rollwise.step.recipe import StepRecipe

log = logging.getLogger(__name__)


def ask(
    sampler: PromptSampler, count: int | None = None, exclude: Collection[Key] = ()
) -> list[Key]:
    """Ask for a step's prompts, or for `count` further ones.

    Raises:
        TypeError: The answer is no list of keys.
        ValueError: It has a prompt twice, or one of `exclude`; or it is empty, for a step.
    """
    answer: Any = sampler.ask() if count is None else sampler.ask(count, exclude=exclude)
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


def beliefs(recipe: StepRecipe, sampler: PromptSampler, keys: Sequence[Key]) -> dict[str, Any]:
    """Ask the sampler what it believes of the prompts, if the recipe uses it; set their budgets."""
    found: dict[str, Any] = {}
    if recipe.uses_priors:
        found["priors"] = sampler.pass_rate_priors(keys)
    if recipe.allocation is not None and not isinstance(recipe.allocation, GVM):
        found["budgets"] = recipe.allocation.counts(sampler.expected_pass_rates(keys))
    if recipe.most_draws is not None:
        budgets = found.get("budgets", recipe.resolved_schedule.max_samples)
        found["budgets"] = limited(recipe, keys, budgets)
    return found


def limited(recipe: StepRecipe, keys: Sequence[Key], budgets: ArrayLike) -> NDArray[np.int64]:
    """Keep budgets, shape (P,), within `recipe.most_draws`."""
    most: NDArray[np.int64] = np.asarray(budgets, dtype=np.int64)
    if recipe.most_draws is None:
        return most
    return np.minimum(most, [recipe.most_draws[key] for key in keys])


@dataclass
class PromptSupply:
    """Keeps an open-ended session supplied with prompts until the step's tokens are spent.

    As prompts end, others are asked for, so that as many are under way as at first, until what is
    under way is expected to spend the rest: by the mean over the prompts that have ended. All of it
    is finished: whether a response counts never depends on its own length. Whoever runs the session
    calls `replenish` whenever slots may be free (with `carry_over` see `run_session` as well):

        while supply.replenish(session, tokens, engine.free_slots, in_engine):
            engine.submit(session.next_draws(engine.free_slots))

    Args:
        recipe: Says when the step's tokens are spent.
        sampler: Is asked for prompts.
        at_a_time: The most prompts under way at a time.

    Attributes:
        carried: With `carry_over`, what was under way when the step ended.
    """

    recipe: StepRecipe
    sampler: PromptSampler
    at_a_time: int
    carried: Carried | None = field(default=None, init=False)
    _runs_out: bool = field(default=False, init=False)
    _open: list[Pool] = field(default_factory=list, init=False)
    _ended: int = field(default=0, init=False)
    _tokens_of_ended: int = field(default=0, init=False)

    def replenish(
        self, session: RolloutSession, tokens: int, free_slots: int | None, in_engine: int
    ) -> bool:
        """Add prompts to a session, or close it; returns whether draws may be due because of that.

        Args:
            session: All draws that it hands out for now have been handed out.
            tokens: Drawn in this step.
            free_slots: Draws that could begin now; None if there is no bound.
            in_engine: Prompts with a draw in the engine; others only wait for grading.
        """
        if self.recipe.carry_over:
            missing = 0 if self._is_over(session, tokens) else session.room
        else:
            missing = min(self._prompts_missing(session, tokens, in_engine), session.room)
        if missing <= 0 or self._runs_out:
            if not self.recipe.carry_over or session.room <= 0:
                session.close()
            return False
        count = min(missing, self.at_a_time - in_engine)
        if free_slots is not None:
            count = min(count, free_slots)
        if count <= 0:
            return False
        keys = ask(self.sampler, count, session.pools)
        if len(keys) < count:
            self._run_out(session, tokens)
        if keys:
            session.add(keys, **beliefs(self.recipe, self.sampler, keys))
        return bool(keys)

    def ends(self, session: RolloutSession, tokens: int) -> bool:
        """Say whether the step ends now, with `carry_over`: it is over, and nothing is too old.

        All results that the engine has reported are to be recorded then, and `end` called.
        """
        if not self.recipe.carry_over or not self._is_over(session, tokens):
            return False
        oldest = session.step - self.recipe.max_steps_off_policy
        return not any(
            pool.exit_reason is None and pool.begun is not None and pool.begun <= oldest
            for pool in session.pools.values()
        )

    def end(self, session: RolloutSession) -> None:
        """End the step: what is under way leaves the session, which is done then."""
        self.carried = Carried(self.at_a_time, session.hand_over())

    def _is_over(self, session: RolloutSession, tokens: int) -> bool:
        if self.recipe.tokens is None:
            return session.ended >= self.at_a_time
        return tokens >= self.recipe.tokens and session.ended > 0

    def _prompts_missing(self, session: RolloutSession, tokens: int, in_engine: int) -> int:
        """Say how many prompts more the step's tokens are expected to suffice for."""
        if self.recipe.tokens is None or not tokens:
            return sys.maxsize
        self._count_ended(session)
        ended, spent = self._ended, self._tokens_of_ended
        if not spent:  # nothing is graded yet
            ended, spent = len(session.pools) - in_engine, tokens
        return math.ceil((self.recipe.tokens - tokens) * ended / spent) - in_engine

    def _count_ended(self, session: RolloutSession) -> None:
        known = self._ended + len(self._open)
        self._open += islice(session.pools.values(), known, None)
        ended = [pool for pool in self._open if pool.exit_reason is not None]
        self._open = [pool for pool in self._open if pool.exit_reason is None]
        self._ended += len(ended)
        self._tokens_of_ended += sum(
            Episode.of(r).price.tokens for pool in ended for r in pool.responses
        )

    def _run_out(self, session: RolloutSession, tokens: int) -> None:
        self._runs_out = True
        session.close()
        log.warning(
            "step %d: the prompt sampler has no further prompts; the step may end before its "
            "tokens or prompts are done, after %d tokens and those of the prompts under way",
            session.step,
            tokens,
        )
