"""All settings of `rollwise train`."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from rollwise.config.base import SamplingConfig
from rollwise.config.choices import CHOICES
from rollwise.config.data import DataSettings
from rollwise.config.defaults import defaults_for
from rollwise.config.group import GroupSettings, StepSettings, from_recipe
from rollwise.config.learning import (
    CheckpointSettings,
    EvaluationSettings,
    LearnerSettings,
    RecordSettings,
)
from rollwise.config.model import ModelSettings
from rollwise.config.sections import chosen
from rollwise.sampling.schedules import check_reachable


class TrainConfig(SamplingConfig):
    """All settings of `rollwise train`."""

    seed: int = from_recipe("seed")
    steps: int = Field(100, ge=1)
    """Training steps: draw, grade, learn. With `tokens` or `seconds` there is no limit by
    default."""
    tokens: int | None = Field(None, ge=1)
    """End after the step in which this many response tokens have been drawn."""
    seconds: float | None = Field(None, gt=0)
    """End after the step in which sampling and learning have taken this long."""
    backend: CHOICES["backend"].sections() = chosen()  # type: ignore[valid-type]
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    grading: CHOICES["grading"].sections() = chosen()  # type: ignore[valid-type]
    prompts: CHOICES["prompts"].sections() = chosen()  # type: ignore[valid-type]
    belief: CHOICES["belief"].sections() = chosen()  # type: ignore[valid-type]
    exit: CHOICES["exit"].sections() = chosen()  # type: ignore[valid-type]
    schedule: CHOICES["schedule"].sections() = chosen()  # type: ignore[valid-type]
    allocation: CHOICES["allocation"].sections() = chosen()  # type: ignore[valid-type]
    group: GroupSettings = GroupSettings()
    step: StepSettings = StepSettings()
    advantage: CHOICES["advantage"].sections() = chosen()  # type: ignore[valid-type]
    engine: CHOICES["engine"].sections() = chosen()  # type: ignore[valid-type]
    learner: LearnerSettings = LearnerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    records: RecordSettings = RecordSettings()

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the model, the task and the exit rule."""
        return defaults_for(given)

    @model_validator(mode="after")
    def _exit_is_reachable(self) -> Self:
        try:
            check_reachable(self.exit.make(), self.schedule.make())
        except ValueError as error:
            raise ValueError(f"`exit` does not fit `schedule`: {error}") from None
        return self

    @model_validator(mode="after")
    def _belief_is_taken(self) -> Self:
        if self.belief.type != "own" and not self.prompts.takes_belief:
            raise ValueError(
                f"`belief.type` must be `own` with `prompts.type` `{self.prompts.type}`, which "
                f"takes no belief; it is `{self.belief.type}`"
            )
        return self

    @model_validator(mode="after")
    def _draws_suffice(self) -> Self:
        total, prompts = self.schedule.total_draws, self.prompts.batch_size
        if total is not None and total < prompts:
            raise ValueError(
                f"`schedule.total_draws` must be at least one for each of the {prompts} prompts "
                f"of a step (`prompts.batch_size`); it is {total}"
            )
        if self.allocation.type == "gvm" and self.group.zero_variance == "refill":
            raise ValueError(
                "`group.zero_variance` must be `drop` or `keep` with `allocation.type` `gvm`: "
                "prompts that are drawn later have no pilot to share out draws by; it is `refill`"
            )
        most = self.schedule.make().max_samples
        wanted = getattr(self.allocation, "maximum", 0)
        if wanted > most:
            raise ValueError(
                f"`allocation.maximum` must be at most the {most} draws of a prompt that "
                f"`schedule` allows; it is {wanted}"
            )
        return self

    @model_validator(mode="after")
    def _single_responses_teach(self) -> Self:
        single = self.exit.type == "fixed_count" and self.exit.samples == 1
        if (
            single
            and self.allocation.type == "none"
            and self.schedule.make().asks(1)
            and self.advantage.make().needs_variance
        ):
            raise ValueError(
                "`exit.samples` must be at least 2 with `advantage.objective` "
                f"`{self.advantage.objective}`, which compares a response with others to the same "
                "prompt; to learn from single responses, set `advantage.baseline` to `belief`"
            )
        return self

    @model_validator(mode="after")
    def _estimates_know_the_rule(self) -> Self:
        unbiased = getattr(self.advantage, "estimates", "") == "unbiased"
        if unbiased and self.exit.make().looks_at_rewards:
            raise ValueError(
                f"`advantage.estimates` must be `plug_in` with `exit.type` `{self.exit.type}`, "
                "which looks at rewards: unbiased estimates are known for rules of counts alone; "
                "it is `unbiased`"
            )
        return self

    @model_validator(mode="after")
    def _all_teach_against_a_belief(self) -> Self:
        if not self.advantage.make().uses_priors:
            return self
        where = "where `advantage` compares responses with a belief (`advantage.baseline`)"
        if self.group.strategy != "all":
            raise ValueError(
                f"`group.strategy` must be `all` {where}: a group chosen by outcome would bias it; "
                f"it is `{self.group.strategy}`"
            )
        if self.group.zero_variance == "refill":
            raise ValueError(
                f"`group.zero_variance` must be `drop` or `keep` {where}: every prompt has a "
                "signal; it is `refill`"
            )
        return self
