"""Grading by an environment of the library `verifiers`, and by reasoning-gym."""

import functools
from collections.abc import Mapping
from typing import Any

from rollwise.environments import EnvironmentSource, procedural
from rollwise.grading.pool import WorkerGrader
from rollwise.grading.worker import GradeFunction, Limits


class EnvironmentGrader(WorkerGrader):
    """Gives each response the reward of an environment's task.

    The answer to a problem is the environment's row, as `read_problems` returns it. Each worker
    process opens the environment.

    Args:
        name: An installed environment, or a module in the current directory.
        arguments: The settings of the taskset.
        timeout: Seconds for one response; see `Limits`.
        workers: Processes; see `WorkerGrader`.

    Raises:
        ConfigError: No environment has this name, it cannot be loaded, or is not single-turn.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        workers: int | None = None,
    ) -> None:
        load = functools.partial(_load, EnvironmentSource(name, arguments or {}))
        load()
        super().__init__(load, Limits(timeout), workers)


def _load(source: EnvironmentSource) -> GradeFunction:
    return source.open().score


class ReasoningGymGrader(WorkerGrader):
    """Gives each response the score of its task of reasoning-gym, often a part of 1.

    The answer to a problem is the task's entry in JSON, as `make_from_source` returns it.

    Args:
        timeout: Seconds for one response; see `Limits`.
        workers: Processes; see `WorkerGrader`.

    Raises:
        ConfigError: reasoning-gym is not installed.
    """

    def __init__(self, timeout: float = 10.0, workers: int | None = None) -> None:
        procedural.require()
        super().__init__(_load_reasoning_gym, Limits(timeout), workers)


def _load_reasoning_gym() -> GradeFunction:
    procedural.require()
    return procedural.score
