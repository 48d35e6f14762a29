"""The graders that `grading.type` names: the settings of each, and how it is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rollwise.errors import ConfigError
from rollwise.grading.code import CodeGrader
from rollwise.grading.environment import EnvironmentGrader
from rollwise.grading.function import FunctionGrader
from rollwise.grading.grader import ExactGrader, Grader
from rollwise.grading.mathematics import MathGrader
from rollwise.plugins import wrong_result
from rollwise.sampling.checks import setting


@dataclass(frozen=True)
class GraderInputs:
    """What a grader is opened with.

    Attributes:
        timeout: Seconds for one response.
        workers: Processes that grade; None takes one for each CPU, at most 16.
        environment: The environment of `verifiers` that `data` names, if any.
        environment_arguments: What it is opened with.
        folder: Where the user's modules may be, besides the current folder.
    """

    timeout: float
    workers: int | None
    environment: str = ""
    environment_arguments: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None


def make_grader(section: Any, data: Any, folder: str | None = None) -> Grader:
    """Open the grader that the section `grading` names; modules may be in `folder` too.

    Raises:
        ConfigError: The user's function or environment cannot be found, or no sandbox works here.
        PluginError: The `open` of a user's class returned no grader.
    """
    inputs = GraderInputs(
        section.timeout, section.workers, data.environment, data.environment_arguments, folder
    )
    settings = section.make()
    grader = settings.open(inputs)
    if not isinstance(grader, Grader):
        raise wrong_result(settings, "open", "a rollwise.grading.Grader", grader)
    return grader


INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


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

    def open(self, inputs: GraderInputs) -> Grader:
        """Make the grader.

        Raises:
            ConfigError: It lacks something; the message says what.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ExactSettings(GraderSettings):
    """The text after the last `=` is the answer."""

    right_or_wrong: ClassVar[bool] = True

    def open(self, inputs: GraderInputs) -> Grader:
        return ExactGrader()


@dataclass(frozen=True)
class MathSettings(GraderSettings):
    """Mathematics, by Math-Verify."""

    right_or_wrong: ClassVar[bool] = True

    def open(self, inputs: GraderInputs) -> Grader:
        return MathGrader(inputs.timeout, inputs.workers)


@dataclass(frozen=True)
class CodeSettings(GraderSettings):
    """Code, by running it against the problem's tests."""

    timeout: ClassVar[float] = 10.0
    right_or_wrong: ClassVar[bool] = True

    uncontained: bool = setting(
        False, "Run responses' programs without a sandbox; they can do whatever you can."
    )

    def open(self, inputs: GraderInputs) -> Grader:
        return CodeGrader(inputs.timeout, inputs.workers, uncontained=self.uncontained)


@dataclass(frozen=True)
class FunctionSettings(GraderSettings):
    """A function of your own."""

    function: str = setting(
        "",
        "`module:function`, of a response and its reference answer, or in the form of verl's "
        "`compute_score` or of TRL's reward functions.",
    )

    settings: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        if not self.function:
            raise ValueError("type 'function' needs function = 'module:function'")

    def open(self, inputs: GraderInputs) -> Grader:
        timeout, workers, folder = inputs.timeout, inputs.workers, inputs.folder
        try:
            return FunctionGrader(self.function, timeout, workers, self.settings, folder)
        except (ValueError, TypeError, ImportError, AttributeError) as error:
            raise ConfigError(f"`grading`: {error}") from error


@dataclass(frozen=True)
class PluginGrader(FunctionSettings):
    """A class of your own: a dataclass with `grade(response, answer) -> float`.

    An instance is made from `settings` in each worker process, where `grade` may hang or crash.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[misc]


@dataclass(frozen=True)
class EnvironmentGraderSettings(GraderSettings):
    """The environment of `data.environment`."""

    timeout: ClassVar[float] = 60.0

    def open(self, inputs: GraderInputs) -> Grader:
        return EnvironmentGrader(
            inputs.environment, inputs.environment_arguments, inputs.timeout, inputs.workers
        )
