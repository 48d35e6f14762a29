"""A step's prompts, and the responses drawn for them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.engines.driver import RolloutCost
from rollwise.sampling import (
    GVM,
    Estimated,
    FixedCount,
    RolloutSession,
    Rounds,
    draw_seed,
)
from rollwise.sampling.pool import Key
from rollwise.training.rollouts import roll_out
from rollwise.training.state import Run

log = logging.getLogger(__name__)


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


def draw_batch(run: Run, step: int) -> Batch:
    """Ask for prompts and sample them.

    With `group.unresolved = "refill"`, further prompts are sampled in place of those that carry no
    signal, until the batch is full or that was done `group.refills` times; a batch that is not
    full then is trained on as it is (DAPO's dynamic sampling, arXiv 2503.14476, section 3.2).
    """
    config = run.config
    keys = run.sampler.ask()
    if isinstance(config.allocation.make(), GVM):
        batch = _after_pilot(run, step, keys)
    else:
        batch = Batch(_session(run, step, keys))
    batch.cost += _roll_out(run, batch.session)
    if config.group.unresolved != "refill":
        return batch
    session = batch.session
    for _ in range(config.group.refills):
        missing = min(config.prompts.batch_size - _mixed(session), session.draws_left)
        further = run.sampler.ask(missing, exclude=_drawn(run, session)) if missing > 0 else []
        if not further:
            break
        session.add(further, **_expectations(run, further))
        batch.cost += _roll_out(run, session)
    missing = config.prompts.batch_size - _mixed(session)
    if missing:
        log.warning("step %d: %d groups are missing from the batch after refilling", step, missing)
    return batch


def _after_pilot(run: Run, step: int, keys: Sequence[Key]) -> Batch:
    """Draw a pilot for each prompt, and share out the step's draws by its pass rates (GVM).

    Where no prompt gets any, the pilot itself is what there is: no prompt has a correct response.
    """
    allocation = run.config.allocation.make()
    pilot = RolloutSession(
        keys,
        FixedCount(allocation.pilot),
        Rounds(allocation.pilot, rounds=1),
        seed=draw_seed(run.config.seed, step, "pilot", 0),
        step=step,
        positive_threshold=run.config.grading.positive_threshold,
    )
    cost = _roll_out(run, pilot)
    pass_rates = [pool.positives / max(len(pool), 1) for pool in pilot.pools.values()]
    counts = allocation.counts(pass_rates)
    sharing = [key for key, count in zip(keys, counts, strict=True) if count]
    if not sharing:
        return Batch(pilot, cost=cost)
    session = _session(run, step, sharing, budgets=counts[counts > 0])
    return Batch(session, pilots=[pilot], cost=cost)


def _session(
    run: Run, step: int, keys: Sequence[Key], budgets: ArrayLike | None = None
) -> RolloutSession:
    config = run.config
    expectations = _expectations(run, keys)
    if budgets is not None:
        expectations["budgets"] = budgets
    return RolloutSession(
        keys,
        exit_rule=config.exit.make(),
        schedule=config.schedule.make(),
        seed=config.seed,
        step=step,
        positive_threshold=config.grading.positive_threshold,
        total_draws=config.schedule.total_draws,
        **expectations,
    )


def _expectations(run: Run, keys: Sequence[Key]) -> dict[str, Any]:
    """What the sampler believes of the prompts, as far as the session has a use for it."""
    config = run.config
    expectations: dict[str, Any] = {}
    if config.exit.give_up_below or config.schedule.make().speculation < 1:
        expectations["priors"] = run.sampler.pass_rate_priors(keys)
    allocation = config.allocation.make()
    if isinstance(allocation, Estimated):
        expectations["budgets"] = allocation.counts(run.sampler.expected_pass_rates(keys))
    return expectations


def _roll_out(run: Run, session: RolloutSession) -> RolloutCost:
    return roll_out(session, run.engine, run.grader, run.prompts, run.answers)


def _mixed(session: RolloutSession) -> int:
    return sum(not pool.uniform for pool in session.pools.values())


def _drawn(run: Run, session: RolloutSession) -> NDArray[np.bool_]:
    """Say of each of the sampler's prompts whether the session has it, in key order."""
    drawn = np.zeros(len(run.sampler.keys), dtype=bool)
    drawn[run.sampler.index.places(list(session.pools))] = True
    return drawn
