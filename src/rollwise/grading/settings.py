"""The graders that `grading.type` names: the settings of each, and how it is opened."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rollwise.answers import why_unreadable
from rollwise.errors import ConfigError
from rollwise.grading.code import CodeGrader
from rollwise.grading.environment import EnvironmentGrader, ReasoningGymGrader
from rollwise.grading.function import FunctionGrader
from rollwise.grading.grader import NO_COLUMNS, Columns, ExactGrader, Grader
from rollwise.grading.mathematics import MathGrader
from rollwise.grading.memory import InMemoryGrader
from rollwise.grading.weighted import WeightedGrader
from rollwise.plugins import IN_MEMORY, is_plugin, wrong_result

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class GraderInputs:
    """What a grader is opened with.

    Attributes:
        timeout: Seconds for one response.
        workers: Processes that grade; None takes one for each CPU, at most 16.
        environment: The environment of `verifiers` that `data` names, if any.
        environment_arguments: What it is opened with.
        folder: Where the user's modules may be, besides the current folder.
        answer_column: The data's column of answers, if it is not `answer`.
    """

    timeout: float
    workers: int | None
    environment: str = ""
    environment_arguments: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
    answer_column: str | None = None


class GraderSettings:
    """A grader to choose by `grading.type`: a frozen dataclass, whose fields are its settings.

    Attributes:
        timeout: Seconds for one response, if `grading.timeout` is not given.
        right_or_wrong: Whether rewards are only 0 and 1, which beliefs about pass rates need.
        instruction: What benchmarks add below each problem, so that the grader finds the answer.
    """

    timeout: ClassVar[float] = 2.0
    right_or_wrong: ClassVar[bool] = False
    instruction: ClassVar[str] = INSTRUCTION

    def why_unreadable(self, answer: str) -> str | None:
        """Return why no response can be correct by a reference answer; None if one can."""
        return None

    def columns(self, inputs: GraderInputs) -> Columns:
        """Return which columns of the data the grader is given; raises what `open` does."""
        return NO_COLUMNS

    def open(self, inputs: GraderInputs) -> Grader:
        """Make the grader.

        Raises:
            ConfigError: It lacks something; the message says what.
        """
        raise NotImplementedError


def make_grader(section: Any, data: Any, folder: str | None = None) -> Grader:
    """Open the grader that the section `grading` names; modules may be in `folder` too.

    Raises:
        ConfigError: The user's function or environment cannot be found, or no sandbox works here.
        PluginError: The `open` of a user's class returned no grader.
    """
    settings = section.make()
    grader = settings.open(inputs_of(section, data, folder))
    if not isinstance(grader, Grader):
        raise wrong_result(settings, "open", "a rollwise.grading.Grader", grader)
    return grader


def inputs_of(section: Any, data: Any, folder: str | None) -> GraderInputs:
    """Gather what a grader is opened with from the sections `grading` and `data`."""
    environment = (data.environment, data.environment_arguments)
    own = (section.timeout, section.workers)
    return GraderInputs(*own, *environment, folder, data.answer_column)


@dataclass(frozen=True)
class ExactSettings(GraderSettings):
    """The text after the last `=` is the answer."""

    right_or_wrong = True

    def open(self, inputs: GraderInputs) -> Grader:
        return ExactGrader()


@dataclass(frozen=True)
class MathSettings(GraderSettings):
    """Mathematics: the final answer, in any form."""

    right_or_wrong = True

    def why_unreadable(self, answer: str) -> str | None:
        return why_unreadable(answer)

    def open(self, inputs: GraderInputs) -> Grader:
        return MathGrader(inputs.timeout, inputs.workers)


@dataclass(frozen=True)
class CodeSettings(GraderSettings):
    """Code, by running it against the problem's tests."""

    timeout = 10.0
    right_or_wrong = True

    uncontained: bool = False
    """Run responses' programs without a sandbox; they can do whatever you can."""

    def open(self, inputs: GraderInputs) -> Grader:
        return CodeGrader(inputs.timeout, inputs.workers, uncontained=self.uncontained)


@dataclass(frozen=True)
class FunctionSettings(GraderSettings):
    """A function of your own, or several weighted ones."""

    timeout = 10.0
    settings: ClassVar[Mapping[str, Any]] = {}

    function: str = ""
    """`module:function` that takes a response and its reference answer, or has the signature of
    verl's `compute_score` or of TRL's reward functions."""
    functions: dict[str, str] = field(default_factory=dict)
    """Several functions by names of your own, whose rewards are added up; `module:function`,
    `module:Class`, `math`, `exact`, `code` or `environment`."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights of `functions` by name; default: 1."""
    correct: str = ""
    """Which of `functions` says whether a response is correct; default: the first."""

    def __post_init__(self) -> None:
        if bool(self.function) == bool(self.functions):
            raise ValueError(
                "type 'function' needs function = 'module:function', or functions = {NAME = "
                "'module:function', ...}"
            )
        kinds = GRADERS.keys() - {"function"}
        for name, named in self.functions.items():
            if not (is_plugin(named) or named in kinds) or name in ("score", "acc"):
                raise ValueError(
                    f"functions must be {', '.join(sorted(kinds))} or 'module:function', by names "
                    f"other than `score` and `acc`, got {name} = {named!r}"
                )
        for name in {*self.weights, *filter(None, [self.correct])} - {*self.functions}:
            known = ", ".join(self.functions) or "no functions"
            raise ValueError(
                f"weights and correct must name one of functions ({known}), got {name}"
            )
        if not all(map(math.isfinite, self.weights.values())):
            raise ValueError(f"weights must be finite, got {self.weights}")

    def why_unreadable(self, answer: str) -> str | None:
        parts = self._parts
        return parts[self._correct].why_unreadable(answer) if parts else None

    def columns(self, inputs: GraderInputs) -> Columns:
        return self.open(inputs).columns

    def open(self, inputs: GraderInputs) -> Grader:
        if self.functions:
            graders = {name: part.open(inputs) for name, part in self._parts.items()}
            return WeightedGrader(graders, self.weights, self._correct)
        more = (inputs.workers, self.settings, inputs.folder, inputs.answer_column)
        try:
            if self.function.startswith(IN_MEMORY):
                return InMemoryGrader(self.function, *more)
            return FunctionGrader(self.function, inputs.timeout, *more)
        except (ValueError, TypeError, ImportError, AttributeError) as error:
            raise ConfigError(f"`grading`: {error}") from error

    @property
    def _parts(self) -> dict[str, GraderSettings]:
        own = self.functions.items()
        return {n: FunctionSettings(f) if is_plugin(f) else GRADERS[f]() for n, f in own}

    @property
    def _correct(self) -> str:
        return self.correct or next(iter(self.functions), "")


@dataclass(frozen=True)
class PluginGrader(FunctionSettings):
    """A class of your own, of which each worker makes an instance from `settings`."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[misc]


@dataclass(frozen=True)
class EnvironmentGraderSettings(GraderSettings):
    """The environment of `data.environment`."""

    timeout = 60.0

    def open(self, inputs: GraderInputs) -> Grader:
        environment = (inputs.environment, inputs.environment_arguments)
        return EnvironmentGrader(*environment, inputs.timeout, inputs.workers)


@dataclass(frozen=True)
class ReasoningGymSettings(GraderSettings):
    """The `score_answer` of the task of reasoning-gym that a problem is from."""

    timeout = 10.0

    def open(self, inputs: GraderInputs) -> Grader:
        return ReasoningGymGrader(inputs.timeout, inputs.workers)


GRADERS: dict[str, type[GraderSettings]] = {
    "exact": ExactSettings,
    "math": MathSettings,
    "code": CodeSettings,
    "function": FunctionSettings,
    "environment": EnvironmentGraderSettings,
    "reasoning-gym": ReasoningGymSettings,
}
"""What `grading.type` may be; each but `function` may be among `grading.functions`, too."""
