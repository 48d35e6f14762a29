"""A grader with a function or class that a program in Python has given as an object."""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rollwise import loops
from rollwise.grading.function import REFERENCES, load_function
from rollwise.grading.grader import Grader, Row
from rollwise.plugins import objects_in_memory

log = logging.getLogger(__name__)

AT_A_TIME = 64
"""Calls of an asynchronous function at a time, by default."""


class InMemoryGrader(Grader):
    """Grades in this process, so that the function may use what its caller has: a model, a client.

    Arguments and errors are those of `FunctionGrader`, but that no call has a time limit. `workers`
    are threads: by default one, and `AT_A_TIME` that wait for an asynchronous function, which runs
    on the event loop that draws.
    """

    def __init__(
        self,
        name: str,
        workers: int | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | None = None,
        answer_column: str | None = None,
    ) -> None:
        references = (*REFERENCES, *filter(None, [answer_column]))
        self._name, self.failures = name, 0
        self._grade = load_function(name, (), dict(settings or {}), references)
        self.columns = self._grade.columns
        found = objects_in_memory()[name]
        waits = inspect.iscoroutinefunction(getattr(found, "grade", found))
        self._threads = ThreadPoolExecutor(workers or (AT_A_TIME if waits else 1), "grading")

    async def reward(self, response: str, answer: str, row: Row | None = None) -> float:
        loop = asyncio.get_running_loop()
        grade = partial(loops.call_for, loop, self._grade, response, answer, row)
        try:
            return await loop.run_in_executor(self._threads, grade)
        except Exception as error:  # the function may raise anything
            self.failures += 1
            if self.failures == 1:
                said = "%s: a response got no reward: %s (more failures are only counted)"
                log.warning(said, self._name, error)
            return 0.0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
