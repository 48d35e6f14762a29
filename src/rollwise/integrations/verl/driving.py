"""A session's draws through coroutines, to the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rollwise.sampling import Draw, RolloutSession

log = logging.getLogger(__name__)

Respond = Callable[[Draw], Awaitable[tuple[float, Any]]]
"""Draws and grades one response: (reward, response); whatever it raises is a lost attempt."""


async def roll_out(session: RolloutSession, respond: Respond) -> None:
    """Draw and grade until every prompt of `session` has ended.

    Draws that are no longer wanted are cancelled, and nothing is under way any more when this
    returns or raises.

    Args:
        session: What to draw.
        respond: Does so.
    """
    under_way: dict[Draw, asyncio.Future[tuple[float, Any]]] = {}
    unwanted: list[asyncio.Future[Any]] = []
    slots = session.schedule.max_samples if session.schedule.speculation < 1 else None
    try:
        while not session.done:
            for draw in session.next_draws(slots):
                under_way[draw] = asyncio.ensure_future(respond(draw))
            await asyncio.wait(under_way.values(), return_when=asyncio.FIRST_COMPLETED)
            for draw in [draw for draw, task in under_way.items() if task.done()]:
                if draw in under_way:
                    surplus = _record(session, draw, under_way.pop(draw))
                    unwanted += [under_way.pop(other) for other in surplus]
            for task in unwanted:
                task.cancel()
    finally:
        unwanted += under_way.values()
        for task in unwanted:
            task.cancel()
        await asyncio.gather(*unwanted, return_exceptions=True)


def _record(
    session: RolloutSession, draw: Draw, task: "asyncio.Future[tuple[float, Any]]"
) -> list[Draw]:
    """Tell the session what came of a draw; returns the draws that are no longer wanted."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        lost = session.lost
        surplus = session.record_failure(draw)
        given_up = session.lost > lost
        log.log(logging.WARNING if given_up else logging.INFO, "%s failed: %r", draw, error)
        return surplus
    return session.record(draw, *task.result())
