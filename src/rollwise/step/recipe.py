"""The recipe of a training step, declared once for every trainer."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from numpy.typing import ArrayLike

from rollwise.sampling import (
    Allocation,
    Balanced,
    ExitRule,
    FixedCount,
    RolloutSession,
    Rounds,
    Schedule,
    as_exit_rule,
)
from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.draws import Key
from rollwise.sampling.exits import is_satisfied
from rollwise.sampling.objectives import Baseline, EstimateMethod, Objective, make_objective
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.sampling.schedules import check_reachable
from rollwise.sampling.selection import Strategy, check_size

MemberOrder = Literal["draw", "random"]
ZeroVariance = Literal["drop", "keep", "refill"]
Average = Literal["tokens", "responses"]
Normalization = Literal["none", "center", "standardize"]


def _setting(name: str, help: str, **limits: Any) -> dict[str, Any]:
    """Say what a field's name is in a settings file, what it means, and its limits (`ge=1`)."""
    return {"setting": name, "help": help, "limits": limits}


@dataclass(frozen=True, kw_only=True)
class StepRecipe:
    """How the prompts of a step are sampled, and what is learned from their responses.

    Fields with `help` in their metadata are settings; `setting` is their name in a settings file.

    Args:
        exit_rule: When a prompt has been sampled enough. By default `Balanced`, with half a group
            of each kind; with an allocation, once the prompt's count is drawn.
        schedule: In what portions responses are drawn. By default `Rounds(8, 4)`; with an
            allocation, one round.
        allocation: Sets the number of draws of each prompt in advance.
        objective: From a group to its advantages: a name in `OBJECTIVES`, or an instance. The
            settings of one given by name are `scale_by_std`, `estimates` and `baseline`.
        most_draws: The most draws of each prompt, where it has a limit of its own, by key.

    Raises:
        ValueError: A setting is out of range, or two settings exclude each other.
    """

    exit_rule: ExitRule | None = None
    schedule: Schedule | None = None
    allocation: Allocation | None = None
    group_size: int = field(
        default=4, metadata=_setting("group.size", "Members of a group, k.", ge=1)
    )
    strategy: Strategy = field(
        default="balanced",
        metadata=_setting(
            "group.strategy",
            "`balanced`: half correct, half incorrect, where there are enough; `max_variance`: "
            "those whose rewards differ most; `positives`: correct ones alone; `all`: every "
            "response.",
        ),
    )
    order: MemberOrder = field(
        default="draw",
        metadata=_setting(
            "group.order", "Which members of each kind: the first drawn (`draw`), or `random` ones."
        ),
    )
    zero_variance: ZeroVariance = field(
        default="drop",
        metadata=_setting(
            "group.zero_variance",
            "What becomes of a prompt whose responses all have one reward: left out (`drop`), kept "
            "at advantage 0 (`keep`), or left out and replaced by further prompts (`refill`, "
            "DAPO's dynamic sampling).",
        ),
    )
    refills: int = field(
        default=3,
        metadata=_setting(
            "group.refills", "For `refill`: how often a step draws further prompts, at most.", ge=1
        ),
    )
    objective: str | Objective = "reference"
    estimates: EstimateMethod = "plug_in"
    scale_by_std: bool = False
    baseline: Baseline = "pool"
    total_draws: int | None = field(
        default=None,
        metadata=_setting(
            "schedule.total_draws",
            "The most draws of a step, all prompts together; those of a pilot (`gvm`) come on top.",
            ge=1,
        ),
    )
    shift_beliefs: bool = field(
        default=True,
        metadata=_setting(
            "step.shift_beliefs",
            "For `advantage.baseline` = `belief`: move the belief about each prompt by what all "
            "other prompts of the step show, so that a policy that changed faster than was "
            "believed does not give all responses advantages of one sign.",
        ),
    )
    normalize_advantages: Normalization = field(
        default="none",
        metadata=_setting(
            "step.normalize_advantages",
            "`center`: subtract the mean of all advantages of a step; with `advantage.objective` = "
            "`reward` that mean is the baseline (FlashREINFORCE). `standardize`: also divide by "
            "their standard deviation (REINFORCE++, SPO).",
        ),
    )
    response_cap: float = field(
        default=0.0,
        metadata=_setting(
            "step.response_cap",
            "Scale down the advantage of a response whose gradient, estimated from the engine's "
            "log-probabilities, exceeds this multiple of the step's median (0: off).",
            ge=0,
            allow_inf_nan=False,
        ),
    )
    average: Average = field(
        default="tokens",
        metadata=_setting(
            "learner.average",
            "Average the loss over all tokens of an update (`tokens`, DAPO's), or over each "
            "response's tokens and then over responses (`responses`), so that all responses count "
            "alike, however long.",
        ),
    )
    positive_threshold: float = field(
        default=POSITIVE_THRESHOLD,
        metadata=_setting(
            "grading.positive_threshold",
            "A response is correct where its reward is above this.",
            allow_inf_nan=False,
        ),
    )
    most_draws: Mapping[Key, int] | None = None
    seed: int = field(
        default=0, metadata=_setting("seed", "Seed of everything random.", ge=0, lt=2**63)
    )

    def __post_init__(self) -> None:
        self.check_choices()
        check_size(self.group_size, self.strategy)
        self._check_draws()

    def check_choices(self) -> None:
        """Check what does not depend on the size of a group.

        Raises:
            ValueError: Names the setting.
        """
        one_of("strategy", self.strategy, get_args(Strategy))
        one_of("order", self.order, get_args(MemberOrder))
        one_of("zero_variance", self.zero_variance, get_args(ZeroVariance))
        one_of("average", self.average, get_args(Average))
        one_of("normalize_advantages", self.normalize_advantages, get_args(Normalization))
        if not 0 <= self.response_cap < math.inf:
            raise ValueError(f"response_cap must be finite and at least 0, got {self.response_cap}")
        at_least("refills", self.refills, 1)
        if self.resolved_objective.uses_priors and self.strategy != "all":
            raise ValueError(
                "`strategy` must be 'all' where responses are compared with a belief (`baseline`): "
                f"a group chosen by outcome would bias it; got {self.strategy!r}"
            )
        if self.resolved_objective.uses_priors and self.zero_variance == "refill":
            raise ValueError(
                "`zero_variance` must be 'drop' or 'keep' where responses are compared with a "
                "belief (`baseline`): every prompt has a signal; got 'refill'"
            )
        if self.pilot and self.zero_variance == "refill":
            raise ValueError(
                "`zero_variance` must be 'drop' or 'keep' with "
                f"{type(self.allocation).__name__}: prompts added later have no pilot to share out "
                "draws by; got 'refill'"
            )

    def _check_draws(self) -> None:
        """Check that rule, schedule and allocation fit each other and the objective."""
        rule, schedule = self.resolved_exit_rule, self.resolved_schedule
        objective, most = self.resolved_objective, schedule.max_samples
        try:
            check_reachable(rule, schedule)
        except ValueError as error:
            raise ValueError(f"`exit_rule` does not fit `schedule`: {error}") from None
        if self.allocation is not None and self.allocation.maximum > most:
            raise ValueError(
                f"`allocation.maximum` must be at most the {most} draws of a prompt that "
                f"`schedule` allows, got {self.allocation.maximum}"
            )
        if rule.looks_at_rewards:
            if getattr(objective, "estimates", "") == "unbiased":
                raise ValueError(
                    f"`estimates` must be 'plug_in' with `exit_rule` {rule}, which looks at "
                    "rewards: unbiased estimates are known for rules of counts alone; got "
                    "'unbiased'"
                )
            return
        ends = schedule.asks(1) and all(is_satisfied(rule, right, 1 - right) for right in (0, 1))
        if self.allocation is None and (ends or most == 1) and objective.needs_variance:
            raise ValueError(
                f"`exit_rule` must draw at least 2 responses with `objective` {objective}, which "
                f"compares a response with others to the same prompt, got {rule}; to learn from "
                "single responses, set `baseline` to 'belief'"
            )

    @cached_property
    def resolved_exit_rule(self) -> ExitRule:
        """The exit rule, or its default."""
        if self.exit_rule is not None:
            return as_exit_rule(self.exit_rule)
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
        return make_objective(self.objective, self.scale_by_std, self.estimates, self.baseline)

    @property
    def pilot(self) -> int:
        """How many draws of each prompt come first, to share out the others by; 0 for none."""
        return getattr(self.allocation, "pilot", 0)  # one of the user's may inherit from nothing

    @property
    def uses_priors(self) -> bool:
        """Whether sampling or advantages depend on what is believed of the prompts' pass rates."""
        return (
            self.resolved_exit_rule.uses_priors
            or self.resolved_schedule.uses_priors
            or self.resolved_objective.uses_priors
        )

    def session(
        self,
        keys: Iterable[Key],
        step: int,
        *,
        priors: ArrayLike | None = None,
        budgets: ArrayLike | None = None,
    ) -> RolloutSession:
        """Start to sample prompts, in a training step of this number; see `RolloutSession`."""
        return RolloutSession(
            keys,
            exit_rule=self.resolved_exit_rule,
            schedule=self.resolved_schedule,
            seed=self.seed,
            step=step,
            positive_threshold=self.positive_threshold,
            priors=priors,
            budgets=budgets,
            total_draws=self.total_draws,
        )


SINGLE_RESPONSES: Mapping[str, Any] = {
    "exit_rule": FixedCount(1),
    "schedule": Rounds(1, rounds=1),
    "group_size": 1,
    "strategy": "all",
    "zero_variance": "keep",
    "objective": "linear",
    "baseline": "belief",
    "response_cap": 1.0,
}
"""The recipe that every trainer follows by default: one response a prompt, compared with what was
expected of the prompt. It goes with the prompt sampler `Worth`, and averages by response."""
