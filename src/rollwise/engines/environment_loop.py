"""Answers of environments that have to be waited for, on an event loop in a thread of its own."""

import logging
import queue
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

from rollwise.engines.asynchronous import LoopThread
from rollwise.environments.episodes import Turn

log = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0
"""How long environments may take to end; one that takes longer is left behind, in its thread."""

Episode = TypeVar("Episode")


class EnvironmentLoop(Generic[Episode]):
    """Awaits what environments answer, beside the engine; calls `interrupt` when one has."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._answered: queue.SimpleQueue[tuple[Episode, Future[Turn]]] = queue.SimpleQueue()
        self._thread: LoopThread | None = None

    def expect(self, episode: Episode, answer: Awaitable[Turn]) -> Future[Turn]:
        """Await the answer to an episode."""

        async def answered() -> Turn:
            return await answer

        def report(done: "Future[Turn]") -> None:
            self._answered.put((episode, done))
            self._interrupt()  # the next turn need not wait for the turns of others

        self._thread = self._thread or LoopThread("environment")
        future = self._thread.begin(answered())
        future.add_done_callback(report)
        return future

    def take(self, block: bool) -> Iterator[tuple[Episode, "Future[Turn]"]]:
        """Yield what has been answered, or cancelled; wait for the first of it if told so."""
        with suppress(queue.Empty):
            while True:
                yield self._answered.get(block)
                block = False

    def close(self) -> None:
        """End what is awaited, and the thread; leave behind what does not end in time."""
        if self._thread is not None and not self._thread.stop(CLOSE_SECONDS):
            log.warning(
                "an environment goes on %g s after it was cancelled, and is left behind: its "
                "`step` must let other tasks run, and end where it is cancelled",
                CLOSE_SECONDS,
            )
        self._thread = None
