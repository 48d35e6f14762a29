"""The vLLM engine: continuous batching, in a process of its own, on GPUs or the CPU."""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rollwise.engines.asynchronous import AsyncEngine, end_other_tasks
from rollwise.engines.reaper import Reaper
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.shared_weights import SharedWeights
from rollwise.engines.vllm_process import free_cached_memory, start_process
from rollwise.errors import EngineError
from rollwise.sampling import Draw
from rollwise.step.outcomes import Completion, LostDraw, Prompts, Result

SEEDS = 2**63
"""vLLM takes seeds below this; larger ones are folded. A session's seeds are below it."""

SHUTDOWN = 30.0
"""Seconds that vLLM's process has to end by itself; unloading its libraries takes a few."""

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
    ) -> None:
        self.path, self.tokenizer, self.end_tokens = path, tokenizer, sorted(end_tokens)
        self.context, self.max_new_tokens = context, max_new_tokens
        self.temperature, self.settings = temperature, settings or VLLMSettings()
        self.restarts, self._asleep = 0, False
        self._weights: SharedWeights | None = None
        self._names = map(str, count())
        self._name_of: dict[Draw, str] = {}
        super().__init__(slots, "vllm")
        self._reaper = Reaper()
        try:
            self._llm = self._call(self._start())
        except BaseException:
            self._thread.stop()
            self._reaper.close()
            raise

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws; none if a prompt leaves no room for a response (a `ValueError`)."""
        room = self.context - self.max_new_tokens
        for draw in draws:
            if (length := len(prompts[draw.key])) > room:
                raise ValueError(
                    f"the prompt {draw.key!r} has {length} tokens, and at most {room} fit: the "
                    f"context is {self.context}, and a response may take {self.max_new_tokens}"
                )
        if draws:
            self._revive()
            self._unless_it_dies(self._wake())
            self._revive()
        for draw in draws:
            prompt, parameters = list(prompts[draw.key]), self._parameters(draw)
            complete = functools.partial(self._complete, draw, prompt, parameters)
            self._begin(draw, complete, self.settings.draw_timeout)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Update the weights in place, once all draws in flight have ended.

        `weights` are named as in the model's own files. A copy of them stays in the machine's
        memory, for a restart.
        """
        self._drop_weights()  # before copying new ones: they are large
        self._weights = SharedWeights(weights)
        if not self._llm.errored:
            self._unless_it_dies(self._reload())
        self._revive()

    def sleep(self) -> None:
        """Free the device's memory as `sleep_level` says, once all draws in flight have ended."""
        # A process that died holds nothing, and is restarted before it is needed.
        if self.settings.sleep_level and not self._asleep and not self._llm.errored:
            self._unless_it_dies(self._sleep())

    def close(self) -> None:
        """Stop vLLM's process and forget draws in flight."""
        super().close()
        self._reaper.close()
        self._drop_weights()

    def ignore_ends(self) -> bool:
        """Draw every response to its maximum length from now on."""
        self.end_tokens = []
        return True

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
        outputs = self._llm.output_processor
        requests = outputs.external_req_ids.get(self._name_of.get(draw, ""), ())
        states = [outputs.request_states.get(request) for request in list(requests)]
        tokens = sum(state.detokenizer.num_output_tokens() for state in states if state)
        return tokens or super()._tokens_so_far(draw, future)

    async def _complete(self, draw: Draw, prompt: list[int], parameters: Any) -> Result:
        request = asyncio.create_task(self._request(draw, prompt, parameters))
        try:
            # vLLM never answers a request that it gets just when its process dies.
            while not (await asyncio.wait({request}, timeout=1.0))[0]:
                if self._llm.errored:
                    return LostDraw(draw, "vLLM's process died")
            output = request.result()
        except Exception as error:  # vLLM may raise anything; the draw is lost
            return LostDraw(draw, f"{type(error).__name__}: {error}")
        finally:
            request.cancel()
            await asyncio.wait({request})
        if output.finish_reason not in ("stop", "length"):
            return LostDraw(draw, f"vLLM ended it with {output.finish_reason!r}")
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
            async for output in llm.generate(tokens_input(prompt), parameters, name):
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
        with self._reaper.marking():
            llm = start_process(self.path, self.context, self.slots, self.settings)
        await self._hand_over(llm)
        self._asleep = False
        return llm

    async def _hand_over(self, llm: Any) -> None:
        """Have vLLM read the latest weights, if it ever got any."""
        if self._weights is not None:
            await llm.collective_rpc("read_weights", args=(self._weights.path,))

    def _unless_it_dies(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something in vLLM; if that kills its process, `_revive` is to restart it."""
        from vllm.v1.engine.exceptions import EngineDeadError

        with suppress(EngineDeadError):
            self._call(coroutine)

    def _revive(self) -> None:
        """Restart vLLM's process if it died, or a restart failed."""
        if not self._llm.errored:
            return
        if self.restarts == self.settings.restarts:
            raise EngineError(
                f"vLLM's process died {self.restarts + 1} times, or could not restart; its own "
                "messages say why, and `engine.restarts` sets how often it is restarted"
            )
        # Draws of the dead process fail by themselves; `wait` has yet to report them.
        futures.wait(self._in_flight.values())
        self.restarts += 1
        log.warning("vLLM's process died; restarting it (restart %d)", self.restarts)
        self._call(self._release())
        self._llm = self._call(self._start())

    async def _reload(self) -> None:
        """Load the latest weights while no slot is taken, and clear the prefix cache."""
        async with self._idle():
            if self._asleep:
                await self._wake()
                return
            await self._llm.pause_generation(clear_cache=True)
            free_cached_memory()  # vLLM rebuilds each layer in memory beyond its own share
            await self._hand_over(self._llm)
            await self._llm.resume_generation()

    async def _sleep(self) -> None:
        """Free the device's memory while no slot is taken; this clears the prefix cache too."""
        async with self._idle():
            await self._llm.sleep(self.settings.sleep_level)
            self._asleep = True

    async def _wake(self) -> None:
        """Take the memory back if asleep: for the weights, which are loaded, then for the cache."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if not self._asleep:
            return
        free_cached_memory()
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
                "vLLM could not reclaim the memory it had freed (engine.sleep_level); lower "
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
        self._llm.shutdown(timeout=SHUTDOWN)  # a second time does nothing
        await end_other_tasks()

    def _drop_weights(self) -> None:
        if self._weights is not None:
            self._weights.close()
        self._weights = None
