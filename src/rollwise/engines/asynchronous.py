"""What engines share that draw on an event loop: its thread, and the draws under way."""

import asyncio
import logging
import queue
import signal
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from rollwise.engines.engine import Completion, LostDraw
from rollwise.sampling import Draw

Outcome = Completion | LostDraw
T = TypeVar("T")

log = logging.getLogger(__name__)


class AsyncEngine:
    """An event loop in a thread of its own, and the draws that it has under way.

    An engine over it says how one draw is completed (`_begin`), and lets go of what it holds in
    `close`. It is a context manager.

    Args:
        slots: The most responses drawn at a time.
        name: Of the thread.
    """

    def __init__(self, slots: int, name: str) -> None:
        self.slots = slots
        self._under_way: dict[Draw, Future[Outcome]] = {}
        self._ended: queue.SimpleQueue[tuple[Draw, Future[Outcome]]] = queue.SimpleQueue()
        self._free = asyncio.Semaphore(slots)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    @property
    def free_slots(self) -> int:
        """Draws that could begin now."""
        return max(0, self.slots - len(self._under_way))

    def wait(self) -> Sequence[Outcome]:
        """Return what is done, at least one if anything is under way.

        Raises:
            Exception: What a draw ended with, if not with an outcome; it is no longer under way.
        """
        outcomes: list[Outcome] = []
        while self._under_way and not outcomes:
            ended = [self._ended.get() for _ in range(max(1, self._ended.qsize()))]
            # One that was done already when it was cancelled is no longer under way.
            done = [(d, future) for d, future in ended if self._under_way.get(d) is future]
            for draw, _ in done:
                del self._under_way[draw]
            outcomes = [future.result() for _, future in done]
        _report_losses(outcomes)
        return outcomes

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Abort draws: their slots become free; returns the tokens they had, if that is known."""
        tokens = 0
        for draw in draws:
            future = self._under_way.pop(draw, None)
            if future is not None:
                tokens += self._tokens_so_far(draw, future)
                future.cancel()
        return tokens

    def close(self) -> None:
        """Stop the loop; draws under way are forgotten. Once more does no harm."""
        if self._loop.is_closed():
            return
        self.cancel(list(self._under_way))
        self._call(self._let_go())
        self._stop_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tokens_so_far(self, draw: Draw, future: Future[Outcome]) -> int:
        """Tokens drawn for a draw; 0 where it is not known how many."""
        if not future.done() or future.exception() is not None:
            return 0
        outcome = future.result()
        return len(outcome.tokens) if isinstance(outcome, Completion) else 0

    async def _let_go(self) -> None:
        """End what runs on the loop, and beyond it."""
        raise NotImplementedError

    def _begin(self, draw: Draw, ending: Coroutine[Any, Any, Outcome]) -> None:
        """Let `ending` complete `draw`; it waits for a slot itself (`_free`)."""
        future = asyncio.run_coroutine_threadsafe(ending, self._loop)
        self._under_way[draw] = future
        future.add_done_callback(lambda ended: self._ended.put((draw, ended)))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _run_loop(self) -> None:
        # What is started here inherits it: Ctrl-C is for this process to handle, not for another.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def end_other_tasks() -> None:
    """Cancel all other tasks of the running loop, and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _report_losses(outcomes: Iterable[Outcome]) -> None:
    reasons = Counter(outcome.reason for outcome in outcomes if isinstance(outcome, LostDraw))
    for reason, times in reasons.items():
        log.warning("%d draws were lost: %s", times, reason)
