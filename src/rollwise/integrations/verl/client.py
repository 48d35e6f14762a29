"""verl's client of its rollout engines, one that drops a response that is no longer wanted."""

import asyncio
from typing import Any

import ray
from verl.workers.rollout.llm_server import LLMServerClient

SEEDED = ("vllm", "cpu")
"""Rollout engines that draw each response from a seed of its own, and drop one when asked."""


class CancellingClient(LLMServerClient):
    """verl's client of its rollout engines, one that can drop a response that is under way."""

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        server_id, server = await super()._acquire_server(request_id, **extra)
        drops = self.config.actor_rollout_ref.rollout.name in SEEDED
        return server_id, _Server(server, drops)


class _Server:
    """A rollout engine's handle, as far as verl's client uses it."""

    def __init__(self, handle: Any, drops: bool) -> None:
        self.generate, self._handle, self._drops = self, handle, drops

    async def remote(self, **request: Any) -> Any:
        """Generate; if cancelled, drop the request and wait until the engine has let go of it.

        An engine that keeps drawing what nobody waits for must not be put to sleep.
        """
        response = self._handle.generate.remote(**request)
        waiting = asyncio.ensure_future(_result(response))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if self._drops:
                ray.cancel(response)
            await asyncio.wait([waiting])
            waiting.exception()
            raise


async def _result(response: Any) -> Any:
    return await response
