"""A client of verl's rollout engines that can cancel a response."""

import asyncio
from typing import Any

import ray
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from rollwise.sampling.draws import hash_index

SEEDED = ("vllm", "cpu")
"""Rollout engines that take a seed for each response, and can cancel one."""


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
        waiting = asyncio.ensure_future(response)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if self._drops:
                ray.cancel(response)
            await asyncio.wait([waiting])
            waiting.exception()
            raise


def with_seed_of_part(request: dict[str, Any]) -> dict[str, Any]:
    """Give each part of a response a seed of its own, derived from its draw's seed.

    A response comes in parts if a tool answers or an update interrupts it. An engine restarts its
    random numbers with each part, so with one seed all parts would share them.
    """
    params = request.get("sampling_params") or {}
    if "seed" not in params:
        return request
    seed = hash_index(f"{params['seed']}\x1f", len(request["prompt_ids"]))
    return request | {"sampling_params": params | {"seed": seed}}
