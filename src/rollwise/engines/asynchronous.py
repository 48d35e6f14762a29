"""The base of engines that draw on an event loop: its thread, and the draws in flight."""

import asyncio
import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from rollwise.engines.engine import Engine
from rollwise.errors import printable
from rollwise.sampling import Draw
from rollwise.step.outcomes import Completion, LostDraw, Result

T = TypeVar("T")

RETRIED = (408, 409, 429)
"""Refusals that are worth a retry, in addition to all server errors (500 and up)."""

CLOSE_SECONDS = 10.0
"""Seconds that cancelled work has to end; after that it is left behind in its thread."""

log = logging.getLogger(__name__)


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancel what runs, and wait until it has ended, or for `CLOSE_SECONDS`."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        # Processes started here inherit this mask: only this process handles Ctrl-C.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(end_other_tasks())
        self._loop.close()


class AsyncEngine(Engine):
    """Base class of engines that draw up to `slots` responses on an event loop, in a thread.

    A subclass tells `_begin` what completes a draw, and frees its resources in `_release`.
    """

    def __init__(self, slots: int, name: str) -> None:
        self.slots = slots
        self._in_flight: dict[Draw, Future[Result]] = {}
        self._free = asyncio.Semaphore(slots)
        self._thread = LoopThread(name)

    @property
    def free_slots(self) -> int:
        return max(0, self.slots - len(self._in_flight))

    def wait(self) -> Sequence[Result]:
        """Return what is done, at least one result; raises what draws raise."""
        done, _ = wait(self._in_flight.values(), return_when=FIRST_COMPLETED)
        ended = [draw for draw, future in self._in_flight.items() if future in done]
        results = [future.result() for future in [self._in_flight.pop(draw) for draw in ended]]
        reasons = Counter(result.reason for result in results if isinstance(result, LostDraw))
        for reason, times in reasons.items():
            log.warning("%d draws were lost: %s", times, reason)
        return results

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Abort draws: their slots become free; returns the tokens they had, if that is known."""
        tokens = 0
        for draw in draws:
            future = self._in_flight.pop(draw, None)
            if future is not None:
                tokens += self._tokens_so_far(draw, future)
                future.cancel()
        return tokens

    def close(self) -> None:
        if self._thread.is_alive:
            self.cancel(list(self._in_flight))
            self._call(self._release())
            self._thread.stop()

    def _tokens_so_far(self, draw: Draw, future: Future[Result]) -> int:
        """Tokens drawn for a draw; 0 if that is not known."""
        if not future.done() or future.exception() is not None:
            return 0
        result = future.result()
        return len(result.tokens) if isinstance(result, Completion) else 0

    async def _release(self) -> None:
        """End what runs on the loop, and any process beyond it."""
        await end_other_tasks()

    def _begin(
        self, draw: Draw, complete: Callable[[], Coroutine[Any, Any, Result]], seconds: float
    ) -> None:
        """Complete a draw in the next free slot; it is lost if that takes longer than `seconds`.

        `complete` has its weights and settings bound: they may change while it waits for a slot.
        """

        async def bounded() -> Result:
            async with self._free:
                try:
                    async with asyncio.timeout(seconds):
                        return await complete()
                except TimeoutError:
                    return LostDraw(draw, f"timed out after {seconds:g} s")

        self._in_flight[draw] = self._thread.begin(bounded())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.begin(coroutine).result()


async def end_other_tasks() -> None:
    """Cancel all other tasks of the running loop, and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def refused_for_good(error: Exception) -> bool:
    """Say whether a service would refuse the same request again, by the error's `status_code`."""
    status = getattr(error, "status_code", 500)
    return status < 500 and status not in RETRIED


def fit_for_a_log(text: str, key: str | None) -> str:
    """Make a service's message one line of at most 300 characters, without the key to it."""
    text = text.replace(key.strip(), "***") if key and key.strip() else text
    return " ".join(printable(text).split())[:300]
