"""Run a session with coroutines that draw and grade, until every prompt has ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rollwise.sampling import Draw, RolloutSession

log = logging.getLogger(__name__)

Respond = Callable[[Draw], Awaitable[tuple[float, Any]]]
"""Draws and grades one response: (reward, response). An exception is a failed attempt."""


async def run_session(
    session: RolloutSession, respond: Respond, too_old: Callable[[], bool] | None = None
) -> None:
    """Draw and grade until every prompt of `session` has ended; nothing is in flight then.

    Draws that are no longer needed are cancelled. `too_old` is asked after each response: if it is
    true, prompts end with what they have, and what is in flight is surplus.
    """
    in_flight: dict[Draw, asyncio.Future[tuple[float, Any]]] = {}
    cancelled: list[asyncio.Future[Any]] = []
    slots = session.schedule.max_samples if session.schedule.draws_ahead else None
    try:
        while not session.done:
            for draw in session.next_draws(slots):
                in_flight[draw] = asyncio.ensure_future(respond(draw))
            await asyncio.wait(in_flight.values(), return_when=asyncio.FIRST_COMPLETED)
            for draw in [draw for draw, task in in_flight.items() if task.done()]:
                if draw in in_flight:  # a reward recorded just now may have made it surplus
                    surplus = _record(session, draw, in_flight.pop(draw))
                    cancelled += map(in_flight.pop, surplus)
            if too_old is not None and not session.done and too_old():
                cancelled += map(in_flight.pop, session.end_all())
            for task in cancelled:
                task.cancel()
    finally:
        cancelled += in_flight.values()
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)


def _record(
    session: RolloutSession, draw: Draw, task: "asyncio.Future[tuple[float, Any]]"
) -> list[Draw]:
    """Record a draw that ended or failed; returns the surplus."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is None:
        return session.record(draw, *task.result())
    log.warning("%s failed: %r", draw, error)
    return session.record_failure(draw)
