"""Which sections choose one of several things, and from which registry.

A built-in kind is added by a line in the registry of its package; nothing here changes.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from rollwise.beliefs import BELIEFS, Belief, Features
from rollwise.config.sections import AT_A_TIME, Variant, VariantByType
from rollwise.config.step import from_recipe
from rollwise.engines import ENGINES
from rollwise.environments import ENVIRONMENTS, SingleTurn
from rollwise.grading import GRADERS
from rollwise.grading.settings import PluginGrader
from rollwise.plugins import load_plugin
from rollwise.prompts import PROMPT_SAMPLERS, PromptSampler
from rollwise.sampling import ALLOCATIONS, EXIT_RULES, OBJECTIVES, SCHEDULES
from rollwise.sampling.draws import Key

BACKENDS = {
    "local": "rollwise.training.settings:LocalSettings",
    "tinker": "rollwise.integrations.tinker.settings:TinkerSettings",
}
"""What `backend.type` may be, by name, because the packages that declare it are in a layer above.
Those files are light: a backend's libraries are imported when it is opened."""


class BackendSection(VariantByType):
    """A backend: where the model is kept and updated."""

    section = "backend"
    kinds: ClassVar[Mapping[str, type]] = {n: load_plugin(p, ()) for n, p in BACKENDS.items()}
    default = "local"
    verbs = ("open",)
    parent = "rollwise.training.settings:BackendSettings"


@dataclass(frozen=True)
class NoAllocation:
    """Counts are not fixed in advance: the exit rule decides."""


class AllocationSection(VariantByType):
    """An allocation: how many responses each prompt gets, fixed in advance."""

    section = "allocation"
    kinds: ClassVar[Mapping[str, type]] = {"none": NoAllocation, **ALLOCATIONS}
    default = "none"
    verbs = ("counts",)


class ExitSection(VariantByType):
    """An exit rule: when a prompt has been sampled enough."""

    section = "exit"
    kinds: ClassVar[Mapping[str, type]] = EXIT_RULES
    default = "balanced"
    verbs = ("satisfied",)
    parent = "rollwise:ExitRule"

    give_up_below: float = from_recipe("exit.give_up_below")


class ScheduleSection(VariantByType):
    """A schedule: when responses are drawn."""

    section = "schedule"
    kinds: ClassVar[Mapping[str, type]] = SCHEDULES
    default = "rounds"
    verbs = ("dispatcher",)
    parent = "rollwise:Schedule"


@dataclass(frozen=True)
class OwnBelief:
    """The prompt sampler's own belief."""


class BeliefSection(VariantByType):
    """A belief: the expected pass rates of prompts, for all that ask the prompt sampler."""

    section = "belief"
    kinds: ClassVar[Mapping[str, type]] = {"own": OwnBelief, **BELIEFS}
    default = "own"
    verbs = ("believe",)
    parent = "rollwise.beliefs:Belief"
    given = ("total", "features")

    features: list[str] | None = None
    """Predict pass rates before the first visit from these columns of the data; by default those of
    `source`, `subject`, `level`, `pass_rate`, `solution_length` and `prompt_tokens` that the data
    has. [] uses none. Any other column of labels, numbers or vectors may be named."""

    def make(  # type: ignore[override]
        self, total: int, columns: Mapping[str, Sequence[Any]], own: Any = None
    ) -> Belief | None:
        """Build the belief about P prompts; None stands for the sampler's `own` class of belief.

        Raises:
            ValueError: This belief takes no features, or a column is unknown, empty or malformed.
        """
        kind = own if self.kind is OwnBelief else self.kind
        chosen = self._chosen(columns) if self._takes_features(kind) else {}
        if kind is None or (self.kind is OwnBelief and not chosen):
            return None
        given = {"features": Features(chosen)} if chosen else {}
        belief: Belief = kind(total, **given, **self.own())
        return belief

    def _takes_features(self, kind: Any) -> bool:
        """Say whether a class takes features; refuse any that are given if it does not."""
        if kind is not None and "features" in inspect.signature(kind).parameters:
            return True
        if self.features:
            name = getattr(kind, "__name__", "that of the prompt sampler")
            raise ValueError(
                "`features` needs a belief that takes them, such as `belief.type` = "
                f"`logit_kalman`; it is {name}"
            )
        return False

    def _chosen(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """Return the columns that are used as features."""
        if self.features is None:
            return {n: v for n, v in columns.items() if any(x not in (None, "") for x in v)}
        if unknown := [name for name in self.features if name not in columns]:
            raise ValueError(
                f"`features` names {', '.join(unknown)}; the data has "
                f"{', '.join(columns) or 'no columns'}"
            )
        return {name: columns[name] for name in self.features}

    def _try(self) -> None:
        if self.kind is not OwnBelief:
            self._takes_features(self.kind)
            self.kind(1, **self.own())


class PromptSection(VariantByType):
    """A prompt sampler: which prompts come next."""

    section = "prompts"
    kinds: ClassVar[Mapping[str, type]] = PROMPT_SAMPLERS
    default = "uniform"
    verbs = ("ask",)
    parent = "rollwise:PromptSampler"
    given = ("keys", "batch_size", "seed", "levels", "belief", "visits")

    batch_size: int = Field(64, ge=1, le=AT_A_TIME)
    """Choose this many prompts a step."""
    visits: int | None = Field(None, ge=1)
    """Visit a prompt at most this many times; training ends when each prompt has had its visits."""

    def make(  # type: ignore[override]
        self,
        keys: Sequence[Key],
        seed: int,
        levels: Sequence[int | None],
        belief: Belief | None = None,
    ) -> PromptSampler:
        """Build the sampler of these prompts, with their labelled levels and its belief."""
        offered = {"keys": keys, "batch_size": self.batch_size, "seed": seed, "levels": levels}
        offered["belief"] = belief
        parameters = inspect.signature(self.kind).parameters
        if self.visits is not None:
            if "visits" not in parameters:
                raise ValueError(f"`visits` needs a sampler that takes it; {self.type} does not")
            offered["visits"] = self.visits
        taken = parameters.keys() & offered
        sampler: PromptSampler = self.kind(**{n: offered[n] for n in taken}, **self.own())
        return sampler

    def _try(self) -> None:
        self.make(range(self.batch_size), 0, [sys.maxsize] * self.batch_size)


class AdvantageSection(Variant):
    """An objective: how much better than expected a response did."""

    section = "advantage"
    kinds: ClassVar[Mapping[str, type]] = OBJECTIVES
    default = "reference"
    tag = "objective"
    verbs = ("advantages",)
    parent = "rollwise:Objective"
    carries = True

    objective: str


class EngineSection(VariantByType):
    """How responses are drawn."""

    section = "engine"
    kinds: ClassVar[Mapping[str, type]] = ENGINES
    default = "transformers"
    verbs = ("open",)
    parent = "rollwise.engines:EngineSettings"

    max_new_tokens: int = Field(1024, ge=1, le=2**24)
    """Cut responses at this many tokens."""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Sample at this temperature."""
    batch_size: int = Field(256, ge=1, le=AT_A_TIME)
    """Draw this many responses at a time."""


class EpisodeSection(VariantByType):
    """An environment of several turns, and where an episode is cut."""

    section = "episode"
    kinds: ClassVar[Mapping[str, type]] = ENVIRONMENTS
    default = "none"
    verbs = ("begin",)
    parent = "rollwise.environments:EpisodeEnvironment"

    max_turns: int = Field(16, ge=1)
    """Give the model at most this many turns in a draw."""
    max_tokens: int = Field(8192, ge=1)
    """Begin no turn of a draw once it has this many tokens, the environment's included;
    `engine.max_new_tokens` limits one turn."""

    @property
    def plays(self) -> bool:
        """Whether draws are played as episodes."""
        return self.kind is not SingleTurn


class GradingSection(VariantByType):
    """From a response to its reward."""

    section = "grading"
    kinds: ClassVar[Mapping[str, type]] = GRADERS
    default = "math"
    verbs = ("grade", "open")

    timeout: float = Field(2.0, gt=0)
    """Give up grading a response after this many seconds; it gets no reward (not with `exact`)."""
    workers: int | None = Field(None, ge=1, le=4096)
    """Grade in this many processes (not with `exact`); by default one a core, at most 16."""
    positive_threshold: float = from_recipe("grading.positive_threshold")

    @classmethod
    def _lack(cls, found: Any) -> str:
        advice = 'is a function: name it by `grading.function`, with `grading.type = "function"`'
        return advice if inspect.isroutine(found) else super()._lack(found)

    def make(self) -> Any:
        """Return the settings that open the grader."""
        made = super().make()
        # A user's grader is constructed in each worker process.
        return made if hasattr(made, "open") else PluginGrader(self.type, settings=self.own())


CHOICES: dict[str, type[Variant]] = {
    kind.section: kind
    for kind in (
        BackendSection,
        PromptSection,
        BeliefSection,
        ExitSection,
        ScheduleSection,
        AllocationSection,
        AdvantageSection,
        EngineSection,
        EpisodeSection,
        GradingSection,
    )
}
"""The sections that choose a kind, by name."""
