"""Sections that choose a strategy by `type`, made from the strategies themselves."""

import dataclasses
import functools
import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from rollwise.prompts import (
    CDAS,
    BatchSampler,
    Curriculum,
    Posterior,
    Prioritized,
    Retiring,
    Uniform,
)
from rollwise.sampling import (
    GVM,
    Balanced,
    Estimated,
    ExitRule,
    FixedCount,
    GiveUp,
    PositiveFocused,
    Rounds,
    Streamed,
)
from rollwise.sampling.pool import Key


class Section(BaseModel):
    """A part of the settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Choice(Section):
    """One of several strategies, told apart by `type`; a subclass of it adds what all share."""

    type: str

    def own(self) -> dict[str, Any]:
        """Return the settings that are the strategy's own, not common to all."""
        shared = [kind for kind in type(self).__bases__ if issubclass(kind, Choice)]
        return self.model_dump(exclude={name for kind in shared for name in kind.model_fields})


class RuleSettings(Choice):
    """A strategy that is nothing but its settings."""

    def make(self) -> Any:
        """Build the strategy."""
        return STRATEGIES[self.type](**self.own())

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        self.make()
        return self


class ExitSettings(RuleSettings):
    """An exit rule: when a prompt has been sampled enough."""

    give_up_below: float = Field(0.0, ge=0, le=1)
    """Give a prompt up once its rule will be met, within its budget, with less than this
    probability; 0 never gives up."""

    def make(self) -> ExitRule:
        """Build the rule."""
        rule: ExitRule = super().make()
        return GiveUp(rule, self.give_up_below) if self.give_up_below else rule


class ScheduleSettings(RuleSettings):
    """A schedule: in what portions responses are drawn."""

    total_draws: int | None = Field(None, ge=1)
    """Draws of a step, at most, all prompts together; those of a pilot (`gvm`) come on top."""


class PromptSettings(Choice):
    """A prompt sampler: which prompts come next."""

    batch_size: int = Field(64, ge=1)
    """Prompts a step."""
    retire_at: float | None = Field(None, gt=0, le=1)
    """A prompt with this pass rate at `retire_after` visits in a row is left alone, while others
    are left."""
    retire_after: int = Field(2, ge=1, le=255)
    """Visits in a row that retire a prompt, where `retire_at` is set."""

    def make(
        self, keys: Sequence[Key], seed: int, levels: Sequence[int | None]
    ) -> BatchSampler | Retiring:
        """Build the sampler.

        Args:
            keys: The prompts.
            seed: Of all that is random in it.
            levels: The labelled level of each prompt; only a curriculum looks at them.
        """
        labels = {"levels": levels} if self.type == "curriculum" else {}
        kind = STRATEGIES[self.type]
        sampler: BatchSampler = kind(keys, self.batch_size, seed, **self.own(), **labels)
        if self.retire_at is None:
            return sampler
        return Retiring(sampler, self.retire_at, self.retire_after)

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        self.make(range(self.batch_size), 0, [sys.maxsize] * self.batch_size)
        return self


def one_of(strategies: Mapping[str, type], base: type[Choice]) -> Any:
    """Make a section for each strategy (a dataclass), chosen by `type`.

    Those fields of the strategy that have a `help` in their metadata are its settings, so that
    they are declared once.
    """

    def section(name: str, strategy: type) -> type[Choice]:
        hints = get_type_hints(strategy)
        own: dict[str, Any] = {
            field.name: (
                hints[field.name],
                Field(field.default, description=field.metadata["help"]),
            )
            for field in dataclasses.fields(strategy)
            if "help" in field.metadata
        }
        summary = (strategy.__doc__ or "").splitlines()[0]
        own["type"] = (Literal[name], Field(name, description=summary))
        return create_model(strategy.__name__, __base__=base, __doc__=summary, **own)

    sections = [section(name, strategy) for name, strategy in strategies.items()]
    union = functools.reduce(operator.or_, sections)
    return union if len(sections) == 1 else Annotated[union, Field(discriminator="type")]


@dataclasses.dataclass(frozen=True)
class NoAllocation:
    """Counts are not fixed beforehand: the exit rule decides."""


PROMPT_SAMPLERS: dict[str, type] = {
    "uniform": Uniform,
    "curriculum": Curriculum,
    "prioritized": Prioritized,
    "cdas": CDAS,
    "posterior": Posterior,
}
EXIT_RULES: dict[str, type] = {
    "balanced": Balanced,
    "positive_focused": PositiveFocused,
    "fixed_count": FixedCount,
}
SCHEDULES: dict[str, type] = {"rounds": Rounds, "streamed": Streamed}
ALLOCATIONS: dict[str, type] = {"none": NoAllocation, "estimated": Estimated, "gvm": GVM}
STRATEGIES = PROMPT_SAMPLERS | EXIT_RULES | SCHEDULES | ALLOCATIONS
DEFAULT_STRATEGIES = {
    "prompts": "uniform",
    "exit": "balanced",
    "schedule": "rounds",
    "allocation": "none",
}
SHARED_SETTINGS: dict[str, type[Choice]] = {
    "prompts": PromptSettings,
    "exit": ExitSettings,
    "schedule": ScheduleSettings,
}
"""The settings of a section that stay when another strategy takes the place of one."""
