"""The vLLM engine: continuous batching, in a process of its own, on GPUs or the CPU."""

import asyncio
import logging
import os
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rollwise import loops
from rollwise.engines.asynchronous import AsyncEngine
from rollwise.engines.ends import text_of
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.vllm_weights import SavedAdapters, SharedWeights
from rollwise.engines.vllm_worker import PARENT
from rollwise.errors import EngineError
from rollwise.sampling import Draw
from rollwise.step.response import LostDraw, Response

SEEDS = 2**63
"""vLLM takes seeds below this; larger ones are folded. A session's seeds are below it."""

SHUTDOWN = 30.0
"""Seconds that vLLM's process has to end by itself; unloading its libraries takes a few."""

ENVIRONMENT = {
    # The learner has used threads; a fork of its process could wait for them forever.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables for vLLM, unless the user has set them."""

log = logging.getLogger(__name__)


class VLLMEngine(AsyncEngine):
    """Draws responses with vLLM's asynchronous engine, each draw a request of its own.

    Each draw has its own random numbers, so what is drawn does not depend on the order of draws, up
    to rounding, which in vLLM depends on the batch.

    vLLM runs in its own process. If that dies, its draws are lost, and it is restarted with the
    latest weights for the next ones; if this process is killed, vLLM's ends too. A script that
    makes an engine needs `if __name__ == "__main__"`, because vLLM's process imports the script.

    Args:
        path: The model: a folder, or a name on the hub.
        tokenizer: Its tokenizer.
        end_tokens: Token ids that end a response.
        context: The most tokens of a prompt and its response together.
        max_new_tokens: Responses are cut here.
        temperature: Sampling temperature; above 0.
        slots: The most responses drawn at a time.
        settings: How vLLM is run; by default with the defaults of `VLLMSettings`.
        adapters: peft's configuration of the adapters that `load_weights` gets, if it gets those.

    Raises:
        EngineError: vLLM is not installed, or did not start.
    """

    def __init__(
        self,
        path: str,
        tokenizer: PreTrainedTokenizerBase,
        end_tokens: Collection[int],
        context: int,
        max_new_tokens: int,
        temperature: float = 1.0,
        slots: int = 256,
        settings: VLLMSettings | None = None,
        adapters: Any = None,
    ) -> None:
        self.path, self.tokenizer, self.end_tokens = path, tokenizer, sorted(end_tokens)
        self.context, self.max_new_tokens = context, max_new_tokens
        self.temperature, self.settings = temperature, settings or VLLMSettings()
        self.adapters = adapters if self.settings.takes_adapters else None
        super().__init__(slots, self.settings.draw_timeout)
        self.restarts, self._asleep = 0, False
        self._weights: SharedWeights | SavedAdapters | None = None
        self._names, self._starting = map(str, count()), asyncio.Lock()
        self._llm = loops.run(self._start())

    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Response:
        """See base class; a `ValueError` if the prompt leaves no room for a response."""
        if len(prompt) > (room := self.context - self.max_new_tokens):
            raise ValueError(
                f"the prompt {draw.key!r} has {len(prompt)} tokens, and at most {room} fit: the "
                f"context is {self.context}, and a response may take {self.max_new_tokens}"
            )
        return await super().complete(draw, prompt)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Update the weights, or the adapters, in place.

        `weights` are named as in the model's own files, adapters as in peft's. A copy stays in the
        machine's memory, that of adapters in a temporary folder, for a restart.
        """
        self._drop_weights()  # before copying new ones: they are large
        if self.adapters is None:
            self._weights = SharedWeights(weights, self._llm.model_config.dtype)
        else:
            self._weights = SavedAdapters(weights, self.adapters)
        loops.run(self._take_weights())

    def sleep(self) -> None:
        """Free the device's memory as `sleep_level` says."""
        # A process that died holds nothing, and is restarted before it is needed.
        if self.settings.sleep_level and not self._asleep and not self._llm.errored:
            loops.run(self._sleep())

    def close(self) -> None:
        loops.run(self._stop())
        self._drop_weights()

    def ignore_ends(self) -> bool:
        self.end_tokens = []
        return True

    async def _respond(self, draw: Draw, prompt: list[int]) -> Response:
        llm, name = self._llm, next(self._names)
        request = asyncio.create_task(self._request(llm, name, draw, prompt))
        try:
            # vLLM never answers a request that it gets just when its process dies.
            while not (await asyncio.wait({request}, timeout=1.0))[0]:
                if llm.errored:
                    raise LostDraw("vLLM's process died")
        except asyncio.CancelledError:
            raise LostDraw("it was cancelled", _tokens_so_far(llm, name)) from None
        finally:
            if request.cancel():
                await asyncio.wait({request})
        if (error := request.exception()) is not None:  # vLLM may raise anything
            raise LostDraw(f"{type(error).__name__}: {error}")
        output = request.result()
        if output.finish_reason not in ("stop", "length"):
            raise LostDraw(f"vLLM ended it with {output.finish_reason!r}")
        tokens = list(output.token_ids)
        logprobs = [at[token].logprob for at, token in zip(output.logprobs, tokens, strict=True)]
        text = text_of(self.tokenizer, tokens, self.end_tokens)
        truncated = output.finish_reason == "length"
        return Response(tokens, np.array(logprobs, np.float32), text, truncated)

    async def _request(self, llm: Any, name: str, draw: Draw, prompt: list[int]) -> Any:
        """Let vLLM draw one response; it is aborted if this is cancelled."""
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            seed=draw.seed % SEEDS,
            temperature=self.temperature,
            max_tokens=self.max_new_tokens,
            stop_token_ids=self.end_tokens,
            ignore_eos=True,  # `stop_token_ids` has every token that ends a response
            logprobs=0,  # only that of the token drawn
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        try:
            adapters = self._weights.request() if isinstance(self._weights, SavedAdapters) else None
            async for output in llm.generate(
                tokens_input(prompt), parameters, name, lora_request=adapters
            ):
                response = output.outputs[0]
            return response
        except asyncio.CancelledError:
            # vLLM aborts by itself, but not while a request is still being submitted.
            await llm.abort(name)
            raise

    async def _make_ready(self) -> None:
        """Restart vLLM's process if it died, or a restart failed; wake it up if it sleeps."""
        async with self._starting:
            while self._llm.errored or self._asleep:
                if self._llm.errored:
                    await self._restart()
                else:
                    await self._wake()

    async def _restart(self) -> None:
        if self.restarts == self.settings.restarts:
            raise EngineError(
                f"vLLM's process died {self.restarts + 1} times, or could not restart; its own "
                "messages say why, and `engine.restarts` sets how often it is restarted"
            )
        self.restarts += 1
        log.warning("vLLM's process died; restarting it (restart %d)", self.restarts)
        await self._stop()
        self._llm = await self._start()

    async def _start(self) -> Any:
        """Start vLLM's process, with the latest weights if there are any."""
        # The process inherits this mask: only this one handles Ctrl-C.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            llm = start_process(self.path, self.context, self.slots, self.settings, self.adapters)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        await self._hand_over(llm)
        self._asleep = False
        return llm

    async def _stop(self) -> None:
        self._llm.shutdown(timeout=SHUTDOWN)  # a second time does nothing
        await asyncio.sleep(0)  # in which its tasks end

    async def _hand_over(self, llm: Any) -> None:
        """Have vLLM read the latest weights, if it ever got any."""
        if isinstance(self._weights, SavedAdapters):
            await llm.add_lora(self._weights.request(load_inplace=True))
        elif self._weights is not None:
            await llm.collective_rpc("read_weights", args=(self._weights.path,))

    async def _take_weights(self) -> None:
        """Have vLLM read the latest weights, also if it sleeps or has died."""
        if not (self._llm.errored or self._asleep):
            with self._surviving():
                await self._llm.pause_generation(clear_cache=True)
                free_cached_memory()  # vLLM rebuilds each layer in memory beyond its own share
                await self._hand_over(self._llm)
                await self._llm.resume_generation()
        await self._make_ready()

    async def _sleep(self) -> None:
        with self._surviving():
            await self._llm.sleep(self.settings.sleep_level)
            self._asleep = True

    async def _wake(self) -> None:
        """Take the memory back: for the weights, which are loaded, then for the cache."""
        free_cached_memory()
        with self._surviving():
            try:
                await self._llm.wake_up(["weights"])
                if self._weights is None and self.settings.sleep_level == 2:
                    await self._llm.collective_rpc("reload_weights")  # those that it began with
                await self._hand_over(self._llm)
                await self._llm.wake_up(["kv_cache"])
            except Exception as error:  # whatever the device reports
                raise EngineError(
                    "vLLM could not reclaim the memory it had freed (engine.sleep_level); lower "
                    f"engine.gpu_memory_utilization if it is not free: {error}"
                ) from error
            self._asleep = False

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Pass over what vLLM raises if its process has died: `_make_ready` restarts it."""
        try:
            yield
        except Exception:
            if not self._llm.errored:
                raise

    def _drop_weights(self) -> None:
        if self._weights is not None:
            self._weights.close()
        self._weights = None


def _tokens_so_far(llm: Any, name: str) -> int:
    """Return the number of tokens that a request under way has drawn."""
    outputs = llm.output_processor
    requests = outputs.external_req_ids.get(name, ())
    states = [outputs.request_states.get(request) for request in list(requests)]
    return sum(state.detokenizer.num_output_tokens() for state in states if state)


def start_process(
    path: str, context: int, slots: int, settings: VLLMSettings, adapters: Any = None
) -> Any:
    """Start vLLM's asynchronous engine on the running event loop; the arguments are `VLLMEngine`'s.

    Raises:
        EngineError: vLLM is not installed, or did not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ[PARENT] = str(os.getpid())
    try:
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise EngineError(f"engine.type = 'vllm' needs vLLM: pip install vllm ({error})") from None
    free_cached_memory()
    arguments = AsyncEngineArgs(
        model=path,
        dtype=settings.dtype,
        max_model_len=context,
        max_num_seqs=slots,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        tensor_parallel_size=settings.tensor_parallel_size,
        enforce_eager=settings.enforce_eager,
        enable_sleep_mode=settings.sleep_level > 0,
        enable_prefix_caching=True,
        # On the CPU, chunking a prompt changes the random numbers of its response.
        enable_chunked_prefill=False if current_platform.is_cpu() else None,
        logprobs_mode="processed_logprobs",
        load_format="safetensors",
        trust_remote_code=False,
        skip_tokenizer_init=True,
        generation_config="vllm",
        worker_extension_cls="rollwise.engines.vllm_worker.WeightReader",
        disable_log_stats=True,
        **_adapter_options(adapters),
    )
    try:
        return AsyncLLM.from_engine_args(arguments)
    except (RuntimeError, ValueError, OSError) as error:
        hint = "" if adapters is None else " (engine.merge_adapters runs without adapters)"
        raise EngineError(f"vLLM did not start with {path}: {error}{hint}") from error


def _adapter_options(adapters: Any) -> dict[str, Any]:
    """Return vLLM's options for one set of adapters at a time."""
    if adapters is None:
        return {}
    from vllm.config.lora import MaxLoRARanks

    ranks = [rank for rank in get_args(MaxLoRARanks) if rank >= adapters.r]
    if not ranks:
        most = max(get_args(MaxLoRARanks))
        raise EngineError(f"`model.lora_rank` must be at most {most} for vLLM; it is {adapters.r}")
    return {"enable_lora": True, "max_lora_rank": min(ranks), "max_loras": 1, "max_cpu_loras": 1}


def free_cached_memory() -> None:
    """Return memory that torch keeps for this process, but does not use, to the device."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
