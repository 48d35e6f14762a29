"""Functions as graders, and graders as functions, in the forms of verl and TRL too."""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsFloat

from rollwise.errors import ConfigError, PluginError, one_line
from rollwise.grading.grader import Grader
from rollwise.grading.worker import GradeFunction, Limits
from rollwise.grading.worker_grader import WorkerGrader
from rollwise.plugins import load_plugin, plugin_folders, raised_in_plugin


class FunctionGrader(WorkerGrader):
    """Gives each response the finite number that a user's function returns.

    The names of its arguments say what a function is given:

    - verl's: `f(data_source, solution_str, ground_truth, extra_info)`, where `data_source` is ""
      and `extra_info` is {}; it may return a dictionary with `score`;
    - TRL's: `f(prompts, completions, **columns)`, of one completion, where the prompt is "" and the
      reference is in the columns that the function names (`answer`, `ground_truth` and `solution`
      where it takes any);
    - else `f(response, answer)`.

    Instead of a function it may be a class, usually a dataclass whose fields are its settings: each
    worker makes an instance from `settings`, and calls its `grade`, in one of the same forms.

    Both run in worker processes, so the result must depend on nothing but response and answer.

    Args:
        name: `module:function` or `module:Class`; the module may be in the current directory, which
            goes to the front of Python's path as with `python -m`.
        timeout: Seconds for one response; one that takes longer fails.
        workers: Processes; None means one for each CPU, at most 16.
        settings: Arguments by name for a class.
        folder: Another folder that the module may be in.

    Raises:
        ConfigError: There is no such function or class, or it does not take the settings.
    """

    def __init__(
        self,
        name: str,
        timeout: float = 10.0,
        workers: int | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | None = None,
    ) -> None:
        folders = plugin_folders(folder)
        load = functools.partial(load_function, name, folders, dict(settings or {}))
        load()
        super().__init__(load, Limits(wall=timeout), workers)


def load_function(name: str, folders: Sequence[str], settings: Mapping[str, Any]) -> GradeFunction:
    """Find a function or class, in `folders` first, to grade with; raises as `FunctionGrader`."""
    found = load_plugin(name, folders, "grading function")
    if inspect.isclass(found):
        try:
            found = getattr(found(**settings), "grade", None)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{name!r}: {error}") from error
        if not callable(found):
            raise ConfigError(f"{name!r} has no method `grade(response, answer)`")
    elif settings:
        raise ConfigError(f"{name!r} is a function, which takes no settings")
    return functools.partial(_one_number, name, found, of_a_pair(found))


def _one_number(
    name: str, function: Callable[..., Any], call: GradeFunction, response: str, answer: str
) -> float:
    """Grade with a user's function; if it returns no finite number, the error names its line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
    described = f"{name}: `{getattr(function, '__name__', name)}`{where}"
    try:
        value: Any = call(response, answer)
    except Exception as error:
        said = raised_in_plugin(error) or f"{described} raised {one_line(error)}"
        raise PluginError(said) from error
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, SupportsFloat) and math.isfinite(reward := float(value)):
            return reward
    kind = type(value).__name__
    raise PluginError(f"{described} must return one finite number, got {kind}: {value!r:.100}")


COLUMNS = ("answer", "ground_truth", "solution")
"""The columns that hold the reference for a function in TRL's form that takes any columns."""


def of_a_pair(function: Callable[..., Any]) -> GradeFunction:
    """Turn a function in any of the forms of `FunctionGrader` into one of (response, answer)."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        return function
    if {"solution_str", "ground_truth"} <= parameters.keys():
        return functools.partial(_as_verl, function)
    if "completions" in parameters:
        named = {name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
        takes_any = len(named) < len(parameters)
        names = named | {"prompts", *COLUMNS} if takes_any else named
        return functools.partial(_as_trl, function, names)
    return function


def _as_verl(function: Callable[..., Any], response: str, answer: str) -> Any:
    score = function(data_source="", solution_str=response, ground_truth=answer, extra_info={})
    return score.get("score") if isinstance(score, dict) else score


def _as_trl(function: Callable[..., Any], names: Iterable[str], response: str, answer: str) -> Any:
    given = {"prompts": "", "completions": response}
    rewards = function(**{name: [given.get(name, answer)] for name in names})
    return rewards[0] if hasattr(rewards, "__len__") and len(rewards) == 1 else rewards


def as_compute_score(grader: Grader) -> Callable[..., float]:
    """Turn a grader into the function that verl calls for each response (`custom_reward_function`).

    It takes `(data_source, solution_str, ground_truth, extra_info)`, and ignores other keyword
    arguments. Several threads may call it at once.
    """

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> float:
        return float(grader.grade([solution_str], [ground_truth])[0])

    return compute_score


def as_reward_function(grader: Grader, answer_column: str = "answer") -> Callable[..., list[float]]:
    """Turn a grader into the function that TRL calls for a batch (`reward_funcs`).

    The reference answers are in the column `answer_column` of the data set.
    """

    def reward(
        prompts: Sequence[Any],
        completions: Sequence[str | Sequence[Mapping[str, Any]]],
        **columns: Any,
    ) -> list[float]:
        if answer_column not in columns:
            names = ", ".join(sorted(columns)) or "none"
            raise ValueError(f"the data set needs a column {answer_column!r}; it has {names}")
        responses = [_text_of(completion) for completion in completions]
        rewards: list[float] = grader.grade(responses, columns[answer_column]).tolist()
        return rewards

    reward.__name__ = type(grader).__name__  # which TRL's logs show
    return reward


def _text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a completion, or of its last message."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
