"""Answers of environments that have to be waited for, on an event loop in a thread of its own."""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress

from rollwise.engines.asynchronous import end_other_tasks
from rollwise.engines.episode_state import Playing
from rollwise.environments.episodes import Turn

log = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0
"""How long environments may take to end; one that takes longer is left behind, in its thread."""


class EnvironmentLoop:
    """Awaits what environments answer, beside the engine; calls `interrupt` when one has."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._answered: queue.SimpleQueue[tuple[Playing, Future[Turn]]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def expect(self, playing: Playing, answer: Awaitable[Turn]) -> None:
        """Await an answer; the episode's `answering` is its future."""

        async def answered() -> Turn:
            return await answer

        def report(done: "Future[Turn]") -> None:
            self._answered.put((playing, done))
            self._interrupt()  # the next turn need not wait for the turns of others

        playing.answering = asyncio.run_coroutine_threadsafe(answered(), self._running_loop())
        playing.answering.add_done_callback(report)

    def take(self, wait: float | None) -> Iterator[tuple[Playing, "Future[Turn]"]]:
        """Yield the answers to episodes under way; wait so many seconds for the first of them."""
        with suppress(queue.Empty):
            while True:
                playing, answer = self._answered.get(block=wait != 0.0, timeout=wait)
                wait = 0.0
                if playing.answering is answer:
                    yield playing, answer

    def interrupt_after(self, seconds: float) -> None:
        """Call `interrupt` once so many seconds are over, by any clock."""
        loop = self._running_loop()
        loop.call_soon_threadsafe(loop.call_later, seconds + 0.01, self._interrupt)

    def close(self) -> None:
        """End what is awaited, and the thread; leave behind what does not end in time."""
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            log.warning(
                "an environment goes on %g s after it was cancelled, and is left behind: its "
                "`step` must let other tasks run, and end where it is cancelled",
                CLOSE_SECONDS,
            )

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="environment", daemon=True
            )
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped; then cancel its tasks, and close it once they have ended."""
    loop.run_forever()
    loop.run_until_complete(end_other_tasks())
    loop.close()
