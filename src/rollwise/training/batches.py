"""A step's prompts, and the responses drawn for them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.engines.driver import RolloutCost
from rollwise.prompts import BatchSampler, Retiring
from rollwise.sampling import (
    GVM,
    Estimated,
    ExitRule,
    FixedCount,
    GiveUp,
    RolloutSession,
    Rounds,
    Schedule,
    draw_seed,
)
from rollwise.sampling.pool import POSITIVE_THRESHOLD, Key

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SamplingPlan:
    """How the prompts of a step are chosen and sampled.

    Attributes:
        sampler: Chooses prompts.
        batch_size: Prompts of a step.
        roll_out: Draws and grades until every prompt of a session has ended.
        exit_rule: When a prompt has been sampled enough.
        schedule: In what portions responses are drawn.
        allocation: Shares out a step's draws beforehand; None leaves them to the schedule.
        refills: How often further prompts are drawn in place of those without signal, at most.
        total_draws: The most draws of a step, a pilot's apart.
        positive_threshold: A response is correct where its reward is above this.
        seed: Of everything random.
    """

    sampler: BatchSampler | Retiring
    batch_size: int
    roll_out: Callable[[RolloutSession], RolloutCost]
    exit_rule: ExitRule
    schedule: Schedule
    allocation: Estimated | GVM | None = None
    refills: int = 0
    total_draws: int | None = None
    positive_threshold: float = POSITIVE_THRESHOLD
    seed: int = 0


@dataclass
class Batch:
    """The rollouts of one step.

    Attributes:
        session: The pools that are trained on.
        pilots: What was drawn beforehand, to share out draws by; not trained on.
        cost: What all of it cost.
    """

    session: RolloutSession
    pilots: list[RolloutSession] = field(default_factory=list)
    cost: RolloutCost = field(default_factory=RolloutCost)

    def counts(self) -> tuple[list[Key], list[int], list[int]]:
        """Return each prompt, and how many of all its responses were correct and drawn."""
        found: dict[Key, tuple[int, int]] = {}
        for session in (*self.pilots, self.session):
            for key, pool in session.pools.items():
                correct, drawn = found.get(key, (0, 0))
                found[key] = correct + pool.positives, drawn + len(pool)
        return list(found), [c for c, _ in found.values()], [n for _, n in found.values()]


def draw_batch(plan: SamplingPlan, step: int) -> Batch:
    """Ask for prompts and sample them.

    With `refills`, further prompts are sampled in place of those that carry no signal, until the
    batch is full or that was done so often; a batch that is not full then is trained on as it is
    (DAPO's dynamic sampling, arXiv 2503.14476, section 3.2).
    """
    keys = plan.sampler.ask()
    if isinstance(plan.allocation, GVM):
        batch = _after_pilot(plan, plan.allocation, step, keys)
    else:
        batch = Batch(_session(plan, step, keys))
    session = batch.session
    batch.cost += plan.roll_out(session)
    for _ in range(plan.refills):
        missing = min(plan.batch_size - _mixed(session), session.draws_left)
        further = plan.sampler.ask(missing, exclude=_drawn(plan, session)) if missing > 0 else []
        if not further:
            break
        session.add(further, **_expectations(plan, further))
        batch.cost += plan.roll_out(session)
    missing = plan.batch_size - _mixed(session)
    if plan.refills and missing:
        log.warning("step %d: %d groups are missing from the batch after refilling", step, missing)
    return batch


def _after_pilot(plan: SamplingPlan, allocation: GVM, step: int, keys: Sequence[Key]) -> Batch:
    """Draw a pilot for each prompt, and share out the step's draws by its pass rates (GVM).

    Where no prompt gets any, the pilot itself is what there is: no prompt has a correct response.
    """
    pilot = RolloutSession(
        keys,
        FixedCount(allocation.pilot),
        Rounds(allocation.pilot, rounds=1),
        seed=draw_seed(plan.seed, step, "pilot", 0),
        step=step,
        positive_threshold=plan.positive_threshold,
    )
    cost = plan.roll_out(pilot)
    pass_rates = [pool.positives / max(len(pool), 1) for pool in pilot.pools.values()]
    counts = allocation.counts(pass_rates)
    sharing = [key for key, count in zip(keys, counts, strict=True) if count]
    if not sharing:
        return Batch(pilot, cost=cost)
    session = _session(plan, step, sharing, budgets=counts[counts > 0])
    return Batch(session, pilots=[pilot], cost=cost)


def _session(
    plan: SamplingPlan, step: int, keys: Sequence[Key], budgets: ArrayLike | None = None
) -> RolloutSession:
    expectations = _expectations(plan, keys)
    if budgets is not None:
        expectations["budgets"] = budgets
    return RolloutSession(
        keys,
        exit_rule=plan.exit_rule,
        schedule=plan.schedule,
        seed=plan.seed,
        step=step,
        positive_threshold=plan.positive_threshold,
        total_draws=plan.total_draws,
        **expectations,
    )


def _expectations(plan: SamplingPlan, keys: Sequence[Key]) -> dict[str, Any]:
    """What the sampler believes of the prompts, as far as the session has a use for it."""
    expectations: dict[str, Any] = {}
    if isinstance(plan.exit_rule, GiveUp) or plan.schedule.speculation < 1:
        expectations["priors"] = plan.sampler.pass_rate_priors(keys)
    if isinstance(plan.allocation, Estimated):
        expectations["budgets"] = plan.allocation.counts(plan.sampler.expected_pass_rates(keys))
    return expectations


def _mixed(session: RolloutSession) -> int:
    return sum(not pool.uniform for pool in session.pools.values())


def _drawn(plan: SamplingPlan, session: RolloutSession) -> NDArray[np.bool_]:
    """Say of each of the sampler's prompts whether the session has it, in key order."""
    drawn = np.zeros(len(plan.sampler.keys), dtype=bool)
    drawn[plan.sampler.index.places(list(session.pools))] = True
    return drawn
