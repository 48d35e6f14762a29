"""All settings of `rollwise train`."""

import inspect
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, SerializeAsAny, model_validator

from rollwise.config import choices
from rollwise.config.base import SamplingConfig
from rollwise.config.data import DataSettings
from rollwise.config.defaults import defaults_for
from rollwise.config.learning import (
    CheckpointSettings,
    EvaluationSettings,
    LearnerSettings,
    RecordSettings,
)
from rollwise.config.model import ModelSettings
from rollwise.config.sections import chosen, differs
from rollwise.config.step import GroupSettings, StepSettings, from_recipe, step_recipe

ENDS = ("steps", "tokens", "seconds")
"""Settings that say when a run ends."""


class TrainConfig(SamplingConfig):
    """All settings of `rollwise train`."""

    seed: int = from_recipe("seed")
    steps: int = Field(100, ge=1)
    """Take this many training steps: draw, grade, learn. With `tokens` or `seconds` there is no
    limit by default."""
    tokens: int | None = Field(None, ge=1)
    """End after the step in which this many response tokens have been drawn."""
    seconds: float | None = Field(None, gt=0)
    """End after the step in which sampling and learning have taken this long."""
    backend: SerializeAsAny[choices.BackendSection] = chosen()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    grading: SerializeAsAny[choices.GradingSection] = chosen()
    prompts: SerializeAsAny[choices.PromptSection] = chosen()
    belief: SerializeAsAny[choices.BeliefSection] = chosen()
    exit: SerializeAsAny[choices.ExitSection] = chosen()
    schedule: SerializeAsAny[choices.ScheduleSection] = chosen()
    allocation: SerializeAsAny[choices.AllocationSection] = chosen()
    group: GroupSettings = GroupSettings()
    step: StepSettings = StepSettings()
    advantage: SerializeAsAny[choices.AdvantageSection] = chosen()
    engine: SerializeAsAny[choices.EngineSection] = chosen()
    learner: LearnerSettings = LearnerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    records: RecordSettings = RecordSettings()

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the model, the task and the exit rule."""
        return defaults_for(given)

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        step_recipe(self)
        takes_belief = "belief" in inspect.signature(self.prompts.kind).parameters
        if self.belief.type != "own" and not takes_belief:
            raise ValueError(
                f"`belief.type` must be `own` with `prompts.type` `{self.prompts.type}`, which "
                f"takes no belief; it is `{self.belief.type}`"
            )
        has_decay = "decay" in type(self.prompts).model_fields
        if self.belief.type != "own" and has_decay and differs(self.prompts, "decay"):
            raise ValueError(
                f"`prompts.decay` is for `belief.type` = `own`; that is `{self.belief.type}`"
            )
        return self
