"""Which sections choose one of several things, and from which registry.

A built-in kind is added by a line in the registry of its package; nothing here changes.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le

from rollwise.beliefs import BELIEFS, Belief, Features
from rollwise.config.sections import Few, Held
from rollwise.config.step import of_recipe
from rollwise.config.variants import Variant
from rollwise.engines import ENGINES
from rollwise.environments import ENVIRONMENTS, SingleTurn
from rollwise.grading import GRADERS
from rollwise.grading.settings import PluginGrader
from rollwise.plugins import is_plugin, load_plugin
from rollwise.prompts import PROMPT_SAMPLERS, PromptSampler
from rollwise.sampling import ALLOCATIONS, EXIT_RULES, OBJECTIVES, SCHEDULES
from rollwise.sampling.checks import Above0, Count, Positive
from rollwise.sampling.draws import Key

BACKENDS = {
    "local": "rollwise.training.build:LocalSettings",
    "tinker": "rollwise.integrations.tinker.settings:TinkerSettings",
}
"""What `backend.type` may be, by name, because the packages that declare it are in a layer above.
Those files are light: a backend's libraries are imported when it is opened."""


class BackendSection(Variant):
    """A backend: where the model is kept and updated."""

    section = "backend"
    kinds: ClassVar = {n: load_plugin(p, ()) for n, p in BACKENDS.items()}
    default = "local"
    parent = "rollwise.training.build:BackendSettings"


@dataclass(frozen=True)
class NoAllocation:
    """Counts are not fixed in advance: the exit rule decides."""


class AllocationSection(Variant):
    """An allocation: how many responses each prompt gets, fixed in advance."""

    section = "allocation"
    kinds: ClassVar = {"none": NoAllocation, **ALLOCATIONS}
    default = "none"
    methods = ("counts",)


class ExitSection(Variant):
    """An exit rule: when a prompt has been sampled enough."""

    section = "exit"
    kinds: ClassVar = EXIT_RULES
    default = "balanced"
    parent = "rollwise:ExitRule"

    give_up_below: float = of_recipe("give_up_below")


class ScheduleSection(Variant):
    """A schedule: when responses are drawn."""

    section = "schedule"
    kinds: ClassVar = SCHEDULES
    default = "rounds"
    parent = "rollwise:Schedule"


@dataclass(frozen=True)
class OwnBelief:
    """The prompt sampler's own belief."""


FEATURES = ("source", "subject", "level", "pass_rate", "solution_length", "prompt_tokens")
"""Columns that a belief learns from by default."""


class BeliefSection(Variant):
    """A belief: the expected pass rates of prompts, for all that ask the prompt sampler."""

    section = "belief"
    kinds: ClassVar = {"own": OwnBelief, **BELIEFS}
    default = "own"
    parent = "rollwise.beliefs:Belief"
    given = ("total", "features")

    features: list[str] | None = None
    """Columns of the data (labels, numbers or vectors) that predict pass rates before the first
    visit. Default: `source`, `subject`, `level`, `pass_rate`, `solution_length` and
    `prompt_tokens`, where they exist; [] uses none."""

    def make(  # type: ignore[override]
        self, total: int, columns: Mapping[str, Sequence[Any]], own: Any = None
    ) -> Belief | None:
        """Build the belief about P prompts; None stands for the sampler's `own` class of belief.

        A `ValueError` says that it takes no features, or that a column is unknown, empty or
        malformed.
        """
        kind = own if self.kind is OwnBelief else self.kind
        takes = kind is not None and "features" in inspect.signature(kind).parameters
        if self.features and not takes:
            raise ValueError(
                "`features` needs a belief that takes them, such as `belief.type` = "
                f"`logit_kalman`; it is {getattr(kind, '__name__', 'that of the prompt sampler')}"
            )
        chosen = self._chosen(columns) if takes else {}
        if kind is None or (self.kind is OwnBelief and not chosen):
            return None
        given = {"features": Features(chosen)} if chosen else {}
        belief: Belief = kind(total, **given, **self.own())
        return belief

    def _chosen(self, columns: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        if self.features is None:
            known = {name: columns[name] for name in FEATURES if name in columns}
            return {n: v for n, v in known.items() if any(x not in (None, "") for x in v)}
        if unknown := [name for name in self.features if name not in columns]:
            raise ValueError(
                f"`features` names {', '.join(unknown)}; the data has "
                f"{', '.join(columns) or 'no columns'}"
            )
        return {name: columns[name] for name in self.features}

    def _try(self) -> None:
        if self.kind is not OwnBelief:
            self.make(1, {name: [0.0] for name in self.features or ()})


class PromptSection(Variant):
    """A prompt sampler: which prompts come next."""

    section = "prompts"
    kinds: ClassVar = PROMPT_SAMPLERS
    default = "uniform"
    parent = "rollwise:PromptSampler"
    given = ("keys", "batch_size", "seed", "levels", "belief", "visits", "columns")

    batch_size: Held = 64
    """Prompts per step."""
    visits: Count | None = None
    """Maximum visits of a prompt; training ends once every prompt has had that many."""

    def make(  # type: ignore[override]
        self,
        keys: Sequence[Key],
        seed: int,
        levels: Sequence[int | None],
        belief: Belief | None = None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> PromptSampler:
        """Build the sampler of these prompts, with their levels, its belief, and their columns."""
        offered = {"keys": keys, "batch_size": self.batch_size, "seed": seed, "levels": levels}
        offered |= {"belief": belief, "columns": columns or {}}
        if self.visits is not None:
            offered["visits"] = self.visits
        offered = {name: value for name, value in offered.items() if self.takes(name)}
        sampler: PromptSampler = self.kind(**offered, **self.own())
        return sampler

    def takes(self, name: str) -> bool:
        """Return whether the sampler is given this when it is made, such as its `columns`."""
        return name in inspect.signature(self.kind).parameters

    def _try(self) -> None:
        if self.visits is not None and not self.takes("visits"):
            raise ValueError(f"`visits` needs a sampler that takes it; {self.type} does not")
        if not is_plugin(self.type):  # which may look up its keys, and is made once these are known
            self.make(range(self.batch_size), 0, [sys.maxsize] * self.batch_size)


class AdvantageSection(Variant):
    """An objective: how much better than expected a response did."""

    section = "advantage"
    kinds: ClassVar = OBJECTIVES
    default = "reference"
    tag = "objective"
    parent = "rollwise:Objective"
    keeps_common = True


class EngineSection(Variant):
    """How responses are drawn."""

    section = "engine"
    kinds: ClassVar = ENGINES
    default = "transformers"
    parent = "rollwise.engines:EngineSettings"

    max_new_tokens: Annotated[int, Ge(1), Le(2**24)] = 1024
    """Maximum new tokens per response."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    batch_size: Held = 256
    """Responses drawn at a time."""


class EpisodeSection(Variant):
    """An environment of several turns, and where an episode is cut."""

    section = "episode"
    kinds: ClassVar = ENVIRONMENTS
    default = "none"
    parent = "rollwise.environments:EpisodeEnvironment"

    max_turns: Count = 16
    """Maximum turns of the model per episode."""
    max_tokens: Count = 8192
    """Tokens of an episode, the environment's included, after which no turn begins."""

    @property
    def plays(self) -> bool:
        """Whether draws are played as episodes."""
        return self.kind is not SingleTurn


class GradingSection(Variant):
    """From a response to its reward."""

    section = "grading"
    kinds: ClassVar = GRADERS
    default = "math"
    methods = ("grade", "open")

    timeout: Above0 = 2.0
    """Seconds to grade a response, of processor time while it computes; one that takes longer gets
    no reward. A grader without processes of its own ignores it."""
    workers: Few | None = None
    """Processes that grade, if the grader has any; default: one per core, at most 16."""
    positive_threshold: float = of_recipe("positive_threshold")

    @classmethod
    def _missing_in(cls, found: Any) -> str:
        advice = 'is a function: name it by `grading.function`, with `grading.type = "function"`'
        return advice if inspect.isroutine(found) else super()._missing_in(found)

    def make(self) -> Any:
        """Return the settings that open the grader."""
        made = super().make()
        # A user's grader is constructed in each worker process.
        return (
            made if hasattr(made, "open") else PluginGrader(function=self.type, settings=self.own())
        )


CHOICES: dict[str, type[Variant]] = {kind.section: kind for kind in Variant.__subclasses__()}
"""The sections that choose a kind, by name."""
