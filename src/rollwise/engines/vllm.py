"""The vLLM engine: continuous batching, in a process of its own, on GPUs or the CPU."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rollwise.engines.asynchronous import AsyncEngine, end_other_tasks
from rollwise.engines.engine import Completion, LostDraw, Prompts, Result
from rollwise.engines.options import VLLMOptions
from rollwise.engines.reaper import Reaper
from rollwise.engines.shared_tensors import handle_of, in_chunks
from rollwise.engines.shared_weights import AdapterFolder, SharedWeights
from rollwise.errors import EngineError
from rollwise.sampling import Draw

SEEDS = 2**63
"""vLLM takes seeds below this; larger ones are folded. A session's seeds are below it."""

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The greatest rank of adapters that vLLM can be told to make room for."""

ENVIRONMENT = {
    # The learner has used threads; a fork of its process could wait for them forever.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables for vLLM, unless the user has set them."""

WORKER = "rollwise.engines.vllm_worker"
"""What vLLM's processes import of this package; this process does not."""

SHUTDOWN = 30.0
"""Seconds that vLLM's process has to end by itself; unloading its libraries takes a few."""

log = logging.getLogger(__name__)


class VLLMEngine(AsyncEngine):
    """Draws responses by vLLM's asynchronous engine, each draw a request of its own.

    A draw begins as soon as a slot is free. Draws of one prompt share its prefix by vLLM's cache.
    Each draw has random numbers of its own, so what is drawn does not depend on the order of
    draws, up to the rounding of the model's arithmetic, which in vLLM depends on the batch.

    vLLM runs in its own process. If that dies, its draws are lost, and it is restarted with the
    latest weights for the next ones; if this process is killed, it ends too. Use the engine as a
    context manager, or close it. A script that makes one needs `if __name__ == "__main__"`, because
    the process imports the script.

    Args:
        path: The model: a folder, or a name on the hub.
        tokenizer: Its tokenizer.
        end_tokens: Token ids that end a response.
        context: The most tokens of a prompt and its response together.
        max_new_tokens: Responses are cut here.
        temperature: Of sampling; above 0.
        slots: The most responses drawn at a time.
        settings: How vLLM is run; by default with the defaults of `VLLMOptions`.
        adapters: If `load_weights` gets adapters alone, by peft's names, peft's configuration of
            them; vLLM applies them to the weights at `path`.

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
        settings: VLLMOptions | None = None,
        adapters: Any | None = None,
    ) -> None:
        self.path, self.tokenizer, self.end_tokens = path, tokenizer, sorted(end_tokens)
        self.context, self.max_new_tokens = context, max_new_tokens
        self.temperature = temperature
        self.settings, self.adapters = settings or VLLMOptions(), adapters
        self.restarts = 0
        self._asleep = False
        self._weights: Mapping[str, Tensor] | SharedWeights | AdapterFolder | None = None
        self._on_device = True  # until that fails
        self._names = map(str, count())
        self._name_of: dict[Draw, str] = {}
        super().__init__(slots, "vllm")
        self._reaper = Reaper()
        try:
            self._llm = self._call(self._start())
        except BaseException:
            self._stop_loop()
            self._reaper.close()
            raise

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws; those without a free slot wait.

        Raises:
            ValueError: A prompt leaves no room for a response; no draw is accepted then.
            EngineError: vLLM's process died more often than it may be restarted.
        """
        for draw in draws:
            self._check_length(draw, prompts[draw.key])
        if draws:
            self._get_ready()
        for draw in draws:
            ending = self._complete(draw, list(prompts[draw.key]), self._parameters(draw))
            self._begin(draw, ending)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Update the weights in place, once all draws in flight have ended.

        vLLM reads them where they are, if that is the GPU that it runs on; for a restart it reads
        them as they are then, so that they may change only between two calls. Others pass through
        the machine's memory, where they stay for a restart: as much again as the weights take.
        Adapters alone pass through a temporary folder.

        Args:
            weights: All weights, by the names in the model's own files; or those of the adapters,
                if the engine was made for them. On a GPU they are taken one after another, so
                they may be made when they are asked for (`merged_weights`).

        Raises:
            EngineError: vLLM's process died more often than it may be restarted, or did not start.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        self._keep(weights)
        if not self._is_dead:
            with suppress(EngineDeadError):
                self._call(self._reload())
        self._revive()

    def lend_memory(self) -> None:
        """Free the device's memory as `sleep_level` says, once all draws in flight have ended.

        vLLM takes it back in `load_weights`, or before the next draw.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        # A process that died holds nothing, and is restarted before it is needed.
        if self.settings.sleep_level and not self._asleep and not self._is_dead:
            with suppress(EngineDeadError):
                self._call(self._sleep())

    def close(self) -> None:
        """Stop vLLM's process and forget draws in flight."""
        super().close()
        self._reaper.close()
        self._forget_weights()

    def _check_length(self, draw: Draw, prompt: Sequence[int]) -> None:
        room = self.context - self.max_new_tokens
        if len(prompt) > room:
            raise ValueError(
                f"the prompt {draw.key!r} has {len(prompt)} tokens, and at most {room} fit: the "
                f"context is {self.context}, and a response may take {self.max_new_tokens} of it"
            )

    def _parameters(self, draw: Draw) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            seed=draw.seed % SEEDS,
            temperature=self.temperature,
            max_tokens=self.max_new_tokens,
            stop_token_ids=self.end_tokens,
            ignore_eos=True,  # `stop_token_ids` has every token that ends a response
            logprobs=0,  # only that of the token drawn
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _tokens_so_far(self, draw: Draw, future: Future[Result]) -> int:
        if self._llm is None:  # it could not be restarted
            return super()._tokens_so_far(draw, future)
        outputs = self._llm.output_processor
        requests = outputs.external_req_ids.get(self._name_of.get(draw, ""), ())
        states = [outputs.request_states.get(request) for request in list(requests)]
        tokens = sum(state.detokenizer.num_output_tokens() for state in states if state)
        return tokens or super()._tokens_so_far(draw, future)

    async def _complete(self, draw: Draw, prompt: list[int], parameters: Any) -> Result:
        async with self._free:
            try:
                async with asyncio.timeout(self.settings.draw_timeout):
                    output = await self._request(draw, prompt, parameters)
            except TimeoutError:
                return LostDraw(draw, f"not done after {self.settings.draw_timeout:g} s")
            except Exception as error:  # vLLM may raise anything; the draw is lost
                return LostDraw(draw, f"{type(error).__name__}: {error}")
        if output.finish_reason not in ("stop", "length"):
            return LostDraw(draw, f"vLLM ended it by {output.finish_reason!r}")
        tokens = list(output.token_ids)
        logprobs = [at[token].logprob for at, token in zip(output.logprobs, tokens, strict=True)]
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        truncated = output.finish_reason == "length"
        return Completion(draw, tokens, np.array(logprobs, np.float32), text, truncated)

    async def _request(self, draw: Draw, prompt: list[int], parameters: Any) -> Any:
        """Let vLLM draw one response; it is aborted if this is cancelled."""
        from vllm.inputs.engine import tokens_input

        llm, name = self._llm, next(self._names)
        self._name_of[draw] = name
        try:
            lora = self._adapter_request()
            outputs = llm.generate(tokens_input(prompt), parameters, name, lora_request=lora)
            async for output in outputs:
                response = output.outputs[0]
            return response
        except asyncio.CancelledError:
            # vLLM aborts by itself, but not while a request is still being submitted.
            await llm.abort(name)
            raise
        finally:
            if self._name_of.get(draw) == name:  # unless the draw was submitted again
                del self._name_of[draw]

    async def _start(self) -> Any:
        """Start vLLM's process, with the latest weights if there are any."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from vllm import AsyncEngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise EngineError(
                f"engine.type = 'vllm' needs vLLM: pip install vllm ({error})"
            ) from None
        settings = self.settings
        if settings.sleep_level and not current_platform.is_sleep_mode_available():
            raise EngineError(
                f"engine.sleep_level must be 0 here: vLLM cannot lend its memory on this platform "
                f"({current_platform.device_type}), only on a GPU; it is {settings.sleep_level}"
            )
        _free_cached_memory()
        arguments = AsyncEngineArgs(
            model=self.path,
            dtype=settings.dtype,
            max_model_len=self.context,
            max_num_seqs=self.slots,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            tensor_parallel_size=settings.tensor_parallel_size,
            enforce_eager=settings.enforce_eager,
            enable_sleep_mode=settings.sleep_level > 0,
            **self._weight_arguments(),
            enable_prefix_caching=True,
            # On the CPU, chunking a prompt changes the random numbers of its response.
            enable_chunked_prefill=False if current_platform.is_cpu() else None,
            logprobs_mode="processed_logprobs",
            load_format="safetensors",
            trust_remote_code=False,
            skip_tokenizer_init=True,
            generation_config="vllm",
            worker_extension_cls=f"{WORKER}.WeightReader",
            disable_log_stats=True,
        )
        try:
            with self._reaper.marking():
                llm = AsyncLLM.from_engine_args(arguments)
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(f"vLLM did not start with {self.path}: {error}") from error
        await self._hand_over(llm)
        self._asleep = False
        return llm

    def _weight_arguments(self) -> dict[str, Any]:
        """Arguments of vLLM for how it gets weights, or adapters, if they are not merged.

        Raises:
            EngineError: Their rank is above what vLLM takes.
        """
        if self.adapters is None:
            return {"weight_transfer_config": {"backend": "rollwise"}}
        ranks = [rank for rank in RANKS if rank >= self.adapters.r]
        if not ranks:
            raise EngineError(
                f"engine.merge_adapters must be true here: vLLM applies adapters up to rank "
                f"{RANKS[-1]}, and model.lora_rank is {self.adapters.r}"
            )
        return {"enable_lora": True, "max_loras": 1, "max_lora_rank": ranks[0]}

    def _adapter_request(self, load_inplace: bool = False) -> Any | None:
        """What names the adapters to vLLM; None if they are merged, or not there yet."""
        if not isinstance(self._weights, AdapterFolder):
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("learner", 1, self._weights.path, load_inplace=load_inplace)

    async def _hand_over(self, llm: Any) -> None:
        """Have vLLM read the latest weights or adapters, if it ever got any."""
        if isinstance(self._weights, AdapterFolder):
            await llm.add_lora(self._adapter_request(load_inplace=True))
        elif isinstance(self._weights, SharedWeights):
            await llm.collective_rpc("read_weights", args=(self._weights.path,))
        elif self._weights is not None:
            await self._share(llm, self._weights)

    async def _share(self, llm: Any, weights: Mapping[str, Tensor]) -> None:
        """Have vLLM read weights where they are; through the machine's memory if it cannot."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await llm.start_weight_update()
            for chunk in in_chunks(weights.items()):
                handles = {name: handle_of(tensor) for name, tensor in chunk.items()}
                await llm.update_weights(WeightTransferUpdateRequest({"tensors": handles}))
            await llm.finish_weight_update()
        except EngineDeadError:
            raise
        except Exception as error:  # whatever the device reports
            log.warning(
                "weights cannot be handed over on the device, and pass through the machine's "
                "memory from now on: %s",
                error,
            )
            self._on_device = False
            self._weights = SharedWeights(weights)
            await self._hand_over(llm)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]

    def _get_ready(self) -> None:
        """Restart vLLM's process if it died, and wake it up if it sleeps."""
        from vllm.v1.engine.exceptions import EngineDeadError

        self._revive()
        try:
            self._call(self._wake())
        except EngineDeadError:
            self._revive()

    @property
    def _is_dead(self) -> bool:
        return self._llm is None or self._llm.errored  # none: a restart failed

    def _revive(self) -> None:
        """Restart vLLM's process if it died, or a restart failed."""
        if not self._is_dead:
            return
        if self.restarts == self.settings.restarts:
            raise EngineError(
                f"vLLM's process died {self.restarts + 1} times, or was not started again; its own "
                "messages say why, and `engine.restarts` sets how often it is restarted"
            )
        # Draws of the dead process fail by themselves; `wait` has yet to report them.
        futures.wait(self._in_flight.values())
        self.restarts += 1
        log.warning("vLLM's process died; starting it again, the %d. time", self.restarts)
        self._call(self._release())
        self._llm = self._call(self._start())

    async def _reload(self) -> None:
        """Load the latest weights while no slot is taken, and clear the prefix cache."""
        async with self._idle():
            if self._asleep:
                await self._wake()
                return
            await self._llm.pause_generation(clear_cache=True)
            _free_cached_memory()  # vLLM makes each layer anew, beside the memory that is its own
            await self._hand_over(self._llm)
            await self._llm.resume_generation()

    async def _sleep(self) -> None:
        """Free the device's memory while no slot is taken; this clears the prefix cache too."""
        async with self._idle():
            await self._llm.sleep(self.settings.sleep_level)
            self._asleep = True

    async def _wake(self) -> None:
        """Take the memory back, if it is lent: for the weights, which are loaded, then the cache.

        Raises:
            EngineError: There is too little memory.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        if not self._asleep:
            return
        _free_cached_memory()
        try:
            await self._llm.wake_up(["weights"])
            if self._weights is None and self.settings.sleep_level == 2:
                await self._llm.collective_rpc("reload_weights")  # those that it began with
            await self._hand_over(self._llm)
            await self._llm.wake_up(["kv_cache"])
        except EngineDeadError:
            raise
        except Exception as error:  # whatever the device reports
            raise EngineError(
                "vLLM could not take back the memory that it lent (engine.sleep_level); lower "
                f"engine.gpu_memory_utilization if it is not free: {error}"
            ) from error
        self._asleep = False

    @asynccontextmanager
    async def _idle(self) -> AsyncIterator[None]:
        """Hold all slots, once the draws in flight have ended."""
        for _ in range(self.slots):
            await self._free.acquire()
        try:
            yield
        finally:
            for _ in range(self.slots):
                self._free.release()

    async def _release(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:  # a restart may have failed
            llm.shutdown(timeout=SHUTDOWN)
        await end_other_tasks()

    def _keep(self, weights: Mapping[str, Tensor]) -> None:
        """Put the latest weights where vLLM can read them, and forget those before."""
        if self.adapters is None:
            self._forget_weights()  # before there are others: they are large
            self._weights = weights if self._shares(weights) else SharedWeights(weights)
        else:
            before, self._weights = self._weights, AdapterFolder(weights, self.adapters)
            if isinstance(before, AdapterFolder):
                before.close()

    def _shares(self, weights: Mapping[str, Tensor]) -> bool:
        """Say whether vLLM can read weights where they are; a warning says if that is unusual."""
        device = next(iter(weights.values())).device
        if device.type != "cuda" or not self._on_device:
            return False
        if device.index or self.settings.tensor_parallel_size > 1:
            log.warning(
                "weights pass through the machine's memory: vLLM reads them on the device only if "
                "the learner is on the first GPU, here on %s, and engine.tensor_parallel_size is "
                "1, here %d",
                device,
                self.settings.tensor_parallel_size,
            )
            self._on_device = False
        return self._on_device

    def _forget_weights(self) -> None:
        if isinstance(self._weights, SharedWeights | AdapterFolder):
            self._weights.close()
        self._weights = None


def _free_cached_memory() -> None:
    """Give what torch keeps for this process, but does not use, back to the device."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
