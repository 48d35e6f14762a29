"""All settings of `rollwise train`."""

import inspect
from collections.abc import Mapping
from dataclasses import field
from typing import Any

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
from rollwise.config.sections import differs
from rollwise.config.step import GroupSettings, StepSettings, of_recipe, step_recipe
from rollwise.engines import ENGINES
from rollwise.errors import ConfigError
from rollwise.methods import METHODS
from rollwise.sampling.checks import Above0, Count

ENDS = ("steps", "tokens", "seconds")
"""Settings that say when a run ends."""


METHOD_HELP = (
    f"How prompts are sampled and learned from; one of {', '.join(METHODS)}. Default: `single` if "
    "the grader gives 0 and 1 and there are no episodes, else `grpo`."
)


class TrainConfig(SamplingConfig):
    """All settings of `rollwise train`."""

    method: str = field(default="single", metadata={"help": METHOD_HELP})
    seed: int = of_recipe("seed")
    steps: Count = 100
    """Training steps (each: draw, grade, learn). Default with `tokens` or `seconds`: no limit."""
    tokens: Count | None = None
    """Response tokens after which the run ends, at the end of the step."""
    seconds: Above0 | None = None
    """Seconds of sampling and learning after which the run ends, at the end of the step."""
    backend: choices.BackendSection
    model: ModelSettings
    data: DataSettings
    grading: choices.GradingSection
    prompts: choices.PromptSection
    belief: choices.BeliefSection
    exit: choices.ExitSection
    schedule: choices.ScheduleSection
    allocation: choices.AllocationSection
    group: GroupSettings
    step: StepSettings
    advantage: choices.AdvantageSection
    engine: choices.EngineSection
    learner: LearnerSettings
    evaluation: EvaluationSettings
    checkpoint: CheckpointSettings
    records: RecordSettings

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the method, the model and the task."""
        return defaults_for(given)

    def _check(self) -> None:
        try:
            self._check_sections()
        except ValueError as error:
            raise ValueError(
                f"with the method `{self.method}`: {error}; or give another `method`"
            ) from None

    def _check_sections(self) -> None:
        step_recipe(self)
        takes_belief = "belief" in inspect.signature(self.prompts.kind).parameters
        if self.belief.type != "own" and not takes_belief:
            raise ValueError(
                f"`belief.type` must be `own` with `prompts.type` `{self.prompts.type}`, which "
                f"takes no belief; it is `{self.belief.type}`"
            )
        has_decay = hasattr(self.prompts, "decay")
        if self.belief.type != "own" and has_decay and differs(self.prompts, "decay"):
            raise ValueError(
                f"`prompts.decay` is for `belief.type` = `own`; that is `{self.belief.type}`"
            )

    def check_engine(self) -> None:
        """Check that the engine can train; a `ConfigError` says which can."""
        if self.backend.type == "local" and not self.engine.kind.can_train:
            training = " or ".join(f"`{name}`" for name, kind in ENGINES.items() if kind.can_train)
            raise ConfigError(
                f"`engine.type` must be {training} to train: the engine `{self.engine.type}` "
                "cannot take the learner's weights"
            )
