"""The base of engines that ask a service for each response, and the errors of services."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence

from rollwise.engines.engine import Engine
from rollwise.errors import printable
from rollwise.sampling import Draw
from rollwise.step.response import LostDraw, Response

RETRIED = (408, 409, 429)
"""Refusals that are worth a retry, in addition to all server errors (500 and up)."""


class AsyncEngine(Engine):
    """Asks for up to `slots` responses at a time; one that takes too long is a lost draw.

    A subclass defines `_respond`.

    Attributes:
        slots: See `Engine`.
        draw_timeout: Seconds for one response, once it has a slot.
    """

    slots: int

    def __init__(self, slots: int, draw_timeout: float) -> None:
        self.slots, self.draw_timeout = slots, draw_timeout
        self._free = asyncio.Semaphore(slots)

    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Response:
        async with self._free:
            await self._make_ready()
            try:
                async with asyncio.timeout(self.draw_timeout) as limit:
                    return await self._respond(draw, list(prompt))
            except (TimeoutError, LostDraw) as error:
                if not limit.expired():
                    raise
                tokens = error.tokens if isinstance(error, LostDraw) else 0
                raise LostDraw(f"timed out after {self.draw_timeout:g} s", tokens) from None

    async def _make_ready(self) -> None:
        """Prepare for a draw that has a slot; this takes none of its seconds."""

    @abstractmethod
    async def _respond(self, draw: Draw, prompt: list[int]) -> Response:
        """Ask for one response; raises what `complete` does."""


def refused_for_good(error: Exception) -> bool:
    """Return whether a service would refuse the same request again, by its `status_code`."""
    status = getattr(error, "status_code", 500)
    return status < 500 and status not in RETRIED


def fit_for_a_log(text: str, key: str | None) -> str:
    """Return a service's message as one line of at most 300 characters, without the key to it."""
    text = text.replace(key.strip(), "***") if key and key.strip() else text
    return " ".join(printable(text).split())[:300]
