"""A client of verl's rollout engines that counts tokens, and can cancel a response."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import ray
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from rollwise.sampling.draws import hash_index

SEEDED = ("vllm", "cpu")
"""Rollout engines that take a seed for each response, and can cancel one."""


@dataclass
class Attempt:
    """One attempt at a draw, whatever becomes of it.

    Attributes:
        tokens: That engines have handed over for it. Of a request that is cancelled they hand over
            none.
        failed: Whether it raised; not of one that was cancelled.
    """

    tokens: int = 0
    failed: bool = False


_UNDER_WAY: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


@contextmanager
def attempting(attempts: list[Attempt]) -> Iterator[Attempt]:
    """Count the tokens of all requests from here, and from the tasks that are begun here."""
    attempts.append(attempt := Attempt())
    before = _UNDER_WAY.set(attempt)
    try:
        yield attempt
    except Exception:
        attempt.failed = True
        raise
    finally:
        _UNDER_WAY.reset(before)


class CancellingClient(LLMServerClient):
    """verl's client of its rollout engines, which can cancel a response in flight."""

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        server_id, server = await super()._acquire_server(request_id, **extra)
        drops = self.config.actor_rollout_ref.rollout.name in SEEDED
        return server_id, _Server(server, drops)


class ResumingClient(CancellingClient, FullyAsyncLLMServerClient):
    """The client under verl's asynchronous trainers: resumes what an update has interrupted."""


class _Server:
    """The part of a rollout engine's handle that verl's client uses."""

    def __init__(self, handle: Any, drops: bool) -> None:
        self.generate, self._handle, self._drops = self, handle, drops

    async def remote(self, **request: Any) -> Any:
        """Generate; if cancelled, cancel the request and wait until the engine has dropped it.

        An engine must not be put to sleep while it still generates.
        """
        response = self._handle.generate.remote(**with_seed_of_part(request))
        waiting = asyncio.ensure_future(_result(response))
        try:
            output = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if self._drops:
                ray.cancel(response)
            await asyncio.wait([waiting])
            waiting.exception()
            raise
        if attempt := _UNDER_WAY.get():
            attempt.tokens += len(output.token_ids)
        return output


def with_seed_of_part(request: dict[str, Any]) -> dict[str, Any]:
    """Give each part of a response a seed of its own, made from its draw's.

    A response comes in parts where a tool answers, or where an update interrupts it. An engine
    begins anew with each, so that with one seed all parts would share their random numbers.
    """
    params = request.get("sampling_params") or {}
    if "seed" not in params:
        return request
    seed = hash_index(f"{params['seed']}\x1f", len(request["prompt_ids"]))
    return request | {"sampling_params": params | {"seed": seed}}


async def _result(response: Any) -> Any:
    return await response
