"""Grading by a function of the user's: of a pair, or in the form that verl or TRL calls."""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwise.errors import ConfigError
from rollwise.grading.limits import GradeFunction, Limits
from rollwise.grading.workers import WorkerGrader


class FunctionGrader(WorkerGrader):
    """Gives each response the finite number that a user's function returns.

    The function is known by the names of its arguments:

    - verl's: `f(data_source, solution_str, ground_truth, extra_info)`, where `data_source` is ""
      and `extra_info` is {}; it may return a dictionary with `score`;
    - TRL's: `f(prompts, completions, **columns)`, of one completion, where the prompt is "" and the
      reference is in the columns that the function names (`answer`, `ground_truth` and `solution`
      where it takes any);
    - else `f(response, answer)`.

    It runs in worker processes, once for equal pairs of response and answer, so its result must
    depend on nothing else.

    Args:
        name: `module:function`; the module may lie in the current directory, which goes to the
            front of Python's path as with `python -m`.
        timeout: Seconds for one response; one that takes longer fails.
        workers: Processes; None takes one for each CPU, at most 16.
        chat: Give completions to a function in TRL's form as chat messages.

    Raises:
        ConfigError: There is no such function.
    """

    def __init__(
        self, name: str, timeout: float = 10.0, workers: int | None = None, chat: bool = False
    ) -> None:
        load = _Named(name, folder=os.getcwd(), chat=chat)
        load()
        super().__init__(load, Limits(wall=timeout), workers)


@dataclass(frozen=True)
class _Named:
    """Finds a function by its name, in `folder` first."""

    name: str
    folder: str
    chat: bool

    def __call__(self) -> GradeFunction:
        return of_a_pair(self._function(), self.chat)

    def _function(self) -> Callable[..., Any]:
        module_name, colon, function_name = self.name.partition(":")
        if not (module_name and colon and function_name):
            raise ConfigError(f"a grading function is named module:function, got {self.name!r}")
        if module_name == "__main__":
            raise ConfigError(
                f"{self.name!r}: workers do not run your script again, so the function must be in "
                "a module of its own"
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there, and something that it imports is not
            raise ConfigError(
                f"{self.name!r}: no module {error.name!r} in {self.folder} or on Python's path"
            ) from error
        function = getattr(module, function_name, None)
        if function is None:
            names = [name for name, _ in inspect.getmembers(module, inspect.isfunction)]
            public = ", ".join(name for name in names if not name.startswith("_"))
            raise ConfigError(
                f"{self.name!r}: no function {function_name!r} in module {module_name}, which has "
                f"{public or 'no public function'}"
            )
        if not callable(function):
            raise ConfigError(f"{self.name!r} is not callable: {type(function).__name__}")
        return function  # type: ignore[no-any-return]


COLUMNS = ("answer", "ground_truth", "solution")
"""The columns in which a function in TRL's form that takes any is given the reference."""


def of_a_pair(function: Callable[..., Any], chat: bool = False) -> GradeFunction:
    """Make of a function in any of the forms of `FunctionGrader` one of (response, answer)."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some that are written in C do not tell
        return function
    if {"solution_str", "ground_truth"} <= parameters.keys():
        return functools.partial(_as_verl, function)
    if "completions" in parameters:
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        named = tuple(name for name in parameters if name not in ("prompts", "completions"))
        columns = COLUMNS if takes_any else named
        prompts = {"prompts": [""]} if takes_any or "prompts" in parameters else {}
        return functools.partial(_as_trl, function, prompts, columns, chat)
    return function


def _as_verl(function: Callable[..., Any], response: str, answer: str) -> Any:
    score = function(data_source="", solution_str=response, ground_truth=answer, extra_info={})
    return score["score"] if isinstance(score, dict) else score


def _as_trl(
    function: Callable[..., Any],
    prompts: Mapping[str, Sequence[str]],
    columns: Sequence[str],
    chat: bool,
    response: str,
    answer: str,
) -> Any:
    completion = [{"role": "assistant", "content": response}] if chat else response
    references = {name: [answer] for name in columns}
    return function(**prompts, completions=[completion], **references)[0]
