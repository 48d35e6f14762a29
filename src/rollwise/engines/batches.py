"""The base of engines that draw many responses together, in batches, on the event loop."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from rollwise.engines.engine import Engine
from rollwise.sampling import Draw
from rollwise.step.response import LostDraw, Response


class BatchEngine(Engine):
    """Draws what is in flight together, a little at a time, whenever no other task can act.

    A subclass defines `_begin`, `_advance` and `_abandon`. Rounds of the event loop stand between
    two calls of `_advance`, so that slots that came free are filled again before it continues, in
    the same order whenever a run is repeated.

    Attributes:
        rounds: Rounds of the event loop in which tasks that have what they wait for can act: record
            a reward, start further draws, cancel others. That takes 3, and more if an environment
            or a grader awaits.
    """

    rounds = 8

    def __init__(self) -> None:
        self._futures: dict[Draw, asyncio.Future[Response]] = {}
        self._task: asyncio.Task[None] | None = None

    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Response:
        if draw in self._futures:
            raise ValueError(f"{draw} is being drawn already")
        self._begin(draw, prompt)
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._futures[draw] = future
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._draw())
            # What a signal raises in it has already been raised out of the loop.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await future
        except asyncio.CancelledError:
            self._futures.pop(draw, None)
            raise LostDraw("it was cancelled", self._abandon(draw)) from None

    @abstractmethod
    def _begin(self, draw: Draw, prompt: Sequence[int]) -> None:
        """Take a draw up; it may have to wait for a slot."""

    @abstractmethod
    def _advance(self) -> Iterable[tuple[Draw, Response | LostDraw]]:
        """Draw some tokens of what was taken up; returns what has ended, if anything has."""

    @abstractmethod
    def _abandon(self, draw: Draw) -> int:
        """Give a draw up; returns the number of tokens that were drawn for it."""

    async def _draw(self) -> None:
        try:
            while True:
                for _ in range(self.rounds):
                    await asyncio.sleep(0)
                if not self._futures:
                    return
                for draw, found in self._advance():
                    future = self._futures.pop(draw)
                    if future.cancelled():
                        continue
                    if isinstance(found, LostDraw):
                        future.set_exception(found)
                    else:
                        future.set_result(found)
        except Exception as error:
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(error)
            self._futures.clear()
