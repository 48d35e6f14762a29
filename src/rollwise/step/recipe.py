"""The recipe of a training step, declared once for every trainer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from rollwise.sampling import (
    Allocation,
    Balanced,
    ExitRule,
    FixedCount,
    RolloutSession,
    Rounds,
    Schedule,
)
from rollwise.sampling.checks import Checked, Count, Share, check_flags
from rollwise.sampling.draws import Key
from rollwise.sampling.exits import where_satisfied
from rollwise.sampling.objectives import Baseline, EstimateMethod, Objective, make_objective
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.sampling.schedules import check_reachable
from rollwise.sampling.selection import Strategy, check_size

ZeroVariance = Literal["drop", "keep", "refill"]
Average = Literal["tokens", "responses"]
Normalization = Literal["none", "center", "standardize"]


@dataclass(frozen=True, kw_only=True)
class StepRecipe(Checked):
    """How the prompts of a step are sampled, and what is learned from their responses.

    Fields with a sentence below them are settings (`rollwise.config.step.NAMES`).

    Args:
        exit_rule: When a prompt has been sampled enough. By default `Balanced`, with half a group
            of each kind; with an allocation, once the prompt's count is drawn.
        schedule: In what portions responses are drawn. By default `Rounds(8, 4)`; with an
            allocation, one round.
        allocation: Sets the number of draws of each prompt in advance.
        objective: From a group to its advantages: a name in `OBJECTIVES`, or an instance. The
            settings of one given by name are `scale_by_std`, `estimates` and `baseline`.
        most_draws: The most draws of each prompt, by key, if prompts have limits of their own.

    Raises:
        ValueError: A setting is out of range, or two settings exclude each other.
    """

    exit_rule: ExitRule | None = None
    schedule: Schedule | None = None
    allocation: Allocation | None = None
    give_up_below: Share = 0.0
    """Probability of meeting the exit rule within the budget below which a prompt is given up; 0
    never gives up."""
    group_size: Count = 4
    """Responses per prompt that are trained on (k)."""
    strategy: Strategy = "balanced"
    """Which responses are trained on: half correct and half incorrect ones where there are enough
    (`balanced`), those whose rewards differ most (`max_variance`), only correct ones (`positives`),
    or all (`all`)."""
    zero_variance: ZeroVariance = "drop"
    """Prompts whose responses all have one reward: left out (`drop`), kept with advantage 0
    (`keep`), or replaced by further prompts (`refill`, DAPO's dynamic sampling)."""
    refills: Count = 3
    """Maximum times per step that `refill` draws further prompts."""
    objective: str | Objective = "reference"
    estimates: EstimateMethod = "plug_in"
    scale_by_std: bool = False
    baseline: Baseline = "pool"
    normalize_advantages: Normalization = "none"
    """Over all advantages of a step: subtract their mean (`center`; with `advantage.objective` =
    `reward`, FlashREINFORCE's baseline), or also divide by their standard deviation
    (`standardize`: REINFORCE++, SPO)."""
    normalize_gradients: bool = False
    """Divide each advantage by the norm of ∇ log π of its response, estimated from the engine's
    log-probabilities, so that the advantage alone sets the size of its gradient."""
    average: Average = "tokens"
    """Average of the loss: over all tokens of an update (`tokens`, as DAPO), or over each
    response's tokens and then over responses (`responses`), so that long and short responses count
    alike."""
    positive_threshold: Annotated[float, Gt(-np.inf), Lt(np.inf)] = POSITIVE_THRESHOLD
    """Reward above which a response counts as correct."""
    most_draws: Mapping[Key, int] | None = None
    seed: Annotated[int, Ge(0), Lt(2**63)] = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        self.check_choices()
        check_size(self.group_size, self.strategy)
        self._check_draws()

    def check_choices(self) -> None:
        """Check what does not depend on the size of a group.

        Raises:
            ValueError: Names the setting.
        """
        super().__post_init__()
        check_flags(self.resolved_objective, "uses_priors", "needs_variance", "looks_at_rewards")
        if self.resolved_objective.uses_priors and self.strategy != "all":
            raise ValueError(
                "`strategy` must be 'all' where responses are compared with a belief (`baseline`): "
                f"a group chosen by outcome would bias it; got {self.strategy!r}"
            )
        if self.zero_variance == "refill" and (self.resolved_objective.uses_priors or self.pilot):
            raise ValueError(
                "`zero_variance` must be 'drop' or 'keep' where responses are compared with a "
                "belief (`baseline`), and where an `allocation` has a pilot; got 'refill'"
            )

    def _check_draws(self) -> None:
        """Check that rule, schedule and allocation fit each other and the objective."""
        rule, objective = self.resolved_exit_rule, self.resolved_objective
        schedule, allocation = self.resolved_schedule, self.allocation
        check_flags(schedule, "uses_priors", "streams", "draws_ahead")
        most = schedule.max_samples
        try:
            check_reachable(rule, schedule)
        except ValueError as error:
            raise ValueError(f"`exit_rule` does not fit `schedule`: {error}") from None
        if allocation is not None and allocation.maximum > most:
            raise ValueError(
                f"`allocation.maximum` must be at most the {most} draws of a prompt that "
                f"`schedule` allows, got {allocation.maximum}"
            )
        right = np.array([0, 1])  # of one draw
        ends = schedule.asks(1) and bool(where_satisfied(rule, right, 1 - right).all())
        one = allocation is None and (ends or most == 1)
        if one and objective.needs_variance:
            raise ValueError(
                f"`exit_rule` must draw at least 2 responses with `objective` {objective}, which "
                f"compares a response with others to the same prompt, got {rule}; to learn from "
                "single responses, set `objective` to 'linear' and `baseline` to 'belief'"
            )
        if one and self.zero_variance != "keep" and not objective.uses_priors:
            raise ValueError(
                "`zero_variance` must be 'keep' where `exit_rule` draws one response for a prompt: "
                f"a pool of one has no variance, and would be left out; got {self.zero_variance!r}"
            )

    @cached_property
    def resolved_exit_rule(self) -> ExitRule:
        """The exit rule, or its default."""
        if self.exit_rule is not None:
            return self.exit_rule
        if self.allocation is not None:
            return FixedCount(self.allocation.maximum)
        half = max(self.group_size // 2, 1)
        return Balanced(half, half)

    @cached_property
    def resolved_schedule(self) -> Schedule:
        """The schedule, or its default."""
        if self.schedule is not None:
            return self.schedule
        return Rounds() if self.allocation is None else Rounds(self.allocation.maximum, rounds=1)

    @cached_property
    def resolved_objective(self) -> Objective:
        """The objective, made if it is given by name."""
        return make_objective(
            self.objective,
            scale_by_std=self.scale_by_std,
            estimates=self.estimates,
            baseline=self.baseline,
        )

    @property
    def pilot(self) -> int:
        """How many draws of each prompt come first, to share out the rest by; 0 for none."""
        return getattr(self.allocation, "pilot", 0)  # one of the user's may inherit from nothing

    @property
    def uses_priors(self) -> bool:
        """Whether sampling or advantages depend on what is believed of the prompts' pass rates."""
        return (
            self.give_up_below > 0
            or self.resolved_schedule.uses_priors
            or self.resolved_objective.uses_priors
        )

    def session(self, keys: Iterable[Key], step: int, **known: Any) -> RolloutSession:
        """Start sampling prompts in the step of this number; `known` are `priors` and `budgets`."""
        return RolloutSession(
            keys,
            exit_rule=self.resolved_exit_rule,
            schedule=self.resolved_schedule,
            seed=self.seed,
            step=step,
            positive_threshold=self.positive_threshold,
            **known,
            give_up_below=self.give_up_below,
        )
