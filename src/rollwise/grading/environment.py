"""Grading by an environment of the library `verifiers`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollwise.environments import EnvironmentSource
from rollwise.grading.limits import GradeFunction, Limits
from rollwise.grading.workers import WorkerGrader

START_TIMEOUT = 1800.0
"""Seconds for a worker to open the environment, which may prepare a large data set."""


class EnvironmentGrader(WorkerGrader):
    """Gives each response the reward that an environment's rubric, or its task, gives it.

    The answer of a problem is the environment's row, as `read_problems` has it. It runs in worker
    processes, once for equal pairs of response and answer; each worker opens the environment.

    Args:
        name: Of the environment, as it is installed, or of a module in the current directory.
        arguments: What it is opened with.
        timeout: Seconds for one response; one that takes longer fails.
        workers: Processes; None takes one for each CPU, at most 16.

    Raises:
        ConfigError: There is none of this name, it cannot be loaded, or it is not single-turn.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        workers: int | None = None,
    ) -> None:
        load = _Opened(EnvironmentSource(name, arguments or {}))
        load()
        super().__init__(load, Limits(wall=timeout, start=START_TIMEOUT), workers)


@dataclass(frozen=True)
class _Opened:
    source: EnvironmentSource

    def __call__(self) -> GradeFunction:
        return self.source.open().score
