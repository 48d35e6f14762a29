"""The one argument that `AdaptiveGRPOTrainer` adds to those of TRL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rollwise.config import AdvantageSettings, GroupSettings
from rollwise.prompts import BatchSampler, Retiring, Uniform
from rollwise.sampling import GVM, Balanced, Estimated, ExitRule, FixedCount, Rounds, Schedule
from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.objectives import EstimateMethod, Objective, check_objective
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.sampling.schedules import check_reachable
from rollwise.sampling.selection import Strategy, check_size

EngineName = Literal["auto", "rollwise", "trl"]
Unresolved = Literal["drop", "keep", "refill"]

MakeSampler = Callable[..., BatchSampler | Retiring]
"""Called with `keys` (the rows of the data set, by number), `batch_size` and `seed`."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveSampling:
    """Which prompts are sampled, how many responses each gets, and what is learnt from them.

    What TRL has a setting for is set there: the group's size (`num_generations`), the prompts of
    a step (`generation_batch_size` responses make `generation_batch_size / num_generations`
    groups), the division by the standard deviation (`scale_rewards`), the seed.

    Args:
        exit_rule: When a prompt has been sampled enough; by default `Balanced`, half a group of
            either kind.
        schedule: In what portions responses are drawn; by default `Rounds(8, 4)`. `Streamed` needs
            rollwise's engine.
        allocation: Counts fixed beforehand, `Estimated` or `GVM`; the exit rule and the schedule
            then default to one round of them.
        prompt_sampler: Makes the sampler, from `keys`, `batch_size` and `seed`: a class such as
            `CDAS`, or `functools.partial` of one with its settings.
        objective: What the advantages optimise.
        estimates: How the pass rate is estimated for `linear`, `log`, `sqrt` and `arcsine`.
        strategy: How a group is chosen from all responses drawn for a prompt. `all` only where
            no prompt can get more than `num_generations`.
        order: Which members serve where several would: the first drawn, or random ones.
        unresolved: A prompt whose responses all have one reward is left out of the loss, kept at
            advantage 0, or left out and made up for by further prompts.
        refills: For `refill`, how often a step draws further prompts, at most.
        positive_threshold: A response is correct where its reward is above this.
        total_draws: The most draws of a step, those of a pilot apart.
        engine: What draws responses: `rollwise`, seeded draw by draw; `trl`, whatever TRL is set
            to; `auto` takes rollwise's where it can do what TRL's settings ask for.
        engine_batch_size: Responses drawn at a time in each process; by default as many as TRL
            draws (`per_device_train_batch_size * steps_per_generation`). vLLM sees to its own.

    Raises:
        ValueError: Settings out of their range, or that do not go together.
        TypeError: A prompt sampler, or its name, in the place of what makes one.
    """

    exit_rule: ExitRule | None = None
    schedule: Schedule | None = None
    allocation: Estimated | GVM | None = None
    prompt_sampler: MakeSampler = Uniform
    objective: Objective = "reference"
    estimates: EstimateMethod = "plug_in"
    strategy: Strategy = "balanced"
    order: Literal["draw", "random"] = "draw"
    unresolved: Unresolved = "drop"
    refills: int = 3
    positive_threshold: float = POSITIVE_THRESHOLD
    total_draws: int | None = None
    engine: EngineName = "auto"
    engine_batch_size: int | None = None

    def __post_init__(self) -> None:
        one_of("unresolved", self.unresolved, get_args(Unresolved))
        one_of("order", self.order, ("draw", "random"))
        one_of("engine", self.engine, get_args(EngineName))
        at_least("refills", self.refills, 1)
        if not callable(self.prompt_sampler):
            raise TypeError(
                "prompt_sampler must be what makes a sampler, such as rw.CDAS or functools.partial("
                f"rw.Posterior, target=0.4), got {self.prompt_sampler!r}"
            )
        if self.engine_batch_size is not None:
            at_least("engine_batch_size", self.engine_batch_size, 1)
        check_objective(self.objective, scale_by_std=False, estimates=self.estimates)
        if isinstance(self.allocation, GVM) and self.unresolved == "refill":
            raise ValueError(
                "unresolved='refill' does not go with GVM: prompts that are drawn later have no "
                "pilot to share out draws by"
            )

    def rule_for(self, group_size: int) -> ExitRule:
        """Return the exit rule, or its default for groups of `group_size`."""
        if self.exit_rule is not None:
            return self.exit_rule
        if self.allocation is not None:
            return FixedCount(self.allocation.maximum)
        return Balanced(max(group_size // 2, 1), max(group_size // 2, 1))

    def schedule_made(self) -> Schedule:
        """Return the schedule, or its default."""
        if self.schedule is not None:
            return self.schedule
        return Rounds() if self.allocation is None else Rounds(self.allocation.maximum, rounds=1)

    def check_for(self, group_size: int) -> None:
        """Refuse what does not go with groups of `group_size`, TRL's `num_generations`.

        Raises:
            ValueError: Names the settings and what would do.
        """
        check_size(group_size, self.strategy)
        schedule = self.schedule_made()
        check_reachable(self.rule_for(group_size), schedule)
        if self.strategy == "all" and schedule.max_samples > group_size:
            raise ValueError(
                f"strategy='all' needs a schedule of at most num_generations = {group_size} draws "
                f"a prompt, for TRL trains on groups of that size; {schedule} allows "
                f"{schedule.max_samples}"
            )

    def group_settings(self, group_size: int) -> GroupSettings:
        """Say how a group is chosen."""
        return GroupSettings(
            size=group_size,
            strategy=self.strategy,
            order=self.order,
            unresolved=self.unresolved,
            refills=self.refills,
        )

    def advantage_settings(self, scale_rewards: Any) -> AdvantageSettings:
        """Say what advantages are computed, the division by TRL's `scale_rewards`.

        Raises:
            ValueError: `scale_rewards` is "batch", or does not go with the objective.
        """
        if scale_rewards not in ("group", "none"):
            raise ValueError(
                "scale_rewards must be 'group' (divide by the standard deviation of a prompt's "
                f"responses) or 'none', got {scale_rewards!r}"
            )
        scale_by_std = scale_rewards == "group"
        try:
            check_objective(self.objective, scale_by_std, self.estimates)
        except ValueError as error:
            raise ValueError(f"{error}: set scale_rewards='none' in GRPOConfig") from None
        return AdvantageSettings(
            objective=self.objective, estimates=self.estimates, scale_by_std=scale_by_std
        )
