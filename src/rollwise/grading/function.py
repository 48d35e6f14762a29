"""Grading by a function of the user's."""

import importlib
import inspect
import os
import sys
from dataclasses import dataclass

from rollwise.errors import ConfigError
from rollwise.grading.pool import GradeFunction, Limits
from rollwise.grading.workers import WorkerGrader


class FunctionGrader(WorkerGrader):
    """Gives each response the finite number that `f(response, answer)` returns.

    The function runs in worker processes, once for equal pairs of response and answer, so its
    result must depend on nothing else.

    Args:
        name: `module:function`; the module may lie in the current directory, which goes to the
            front of Python's path as with `python -m`.
        timeout: Seconds for one response; one that takes longer fails.
        workers: Processes; None takes one for each CPU, at most 16.

    Raises:
        ConfigError: There is no such function.
    """

    def __init__(self, name: str, timeout: float = 10.0, workers: int | None = None) -> None:
        load = _Named(name, folder=os.getcwd())
        load()
        super().__init__(load, Limits(wall=timeout), workers)


@dataclass(frozen=True)
class _Named:
    """Finds a function by its name, in `folder` first."""

    name: str
    folder: str

    def __call__(self) -> GradeFunction:
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
