"""The built-in engine: continuous generation with causal language models of `transformers`."""

import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.attention import ATTENTION, Prefill, sharing_weights
from rollwise.engines.batches import BatchEngine
from rollwise.engines.decoder import forward_of
from rollwise.engines.engine import Completion, Engine, LostDraw
from rollwise.engines.lanes import Lane, PromptStates
from rollwise.engines.local import LocalEngine, Response, lane_count
from rollwise.engines.slots import SlotCache
from rollwise.sampling import Draw

logger = logging.getLogger(__name__)

WORTH_A_LANE = 192
"""Draws that are begun at a time are split over the lanes if each gets at least so many: a step of
few rows costs nearly what one of more does."""


def make_engine(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int,
    temperature: float = 1.0,
    batch_size: int = 256,
) -> Engine:
    """Choose the fastest engine that `model` fits; a slower one is announced in the log.

    The arguments are those of `LocalEngine`.
    """
    arguments = (model, tokenizer, max_new_tokens, temperature, batch_size)
    reason = unfit_reason(model)
    if reason is None:
        return TransformersEngine(*arguments)
    name = type(model).__name__
    logger.warning("%s draws in whole batches, which is slower: %s", name, reason)
    return BatchEngine(*arguments)


class TransformersEngine(LocalEngine):
    """Draws up to `batch_size` responses at a time, each in a slot that is filled again at once.

    A response that has ended or was cancelled makes room for the next draw while others go on.
    Draws of one prompt share its prefill, at once or later. Keys and values stay where they are,
    by lengths, so that neither copies of the cache nor much padding cost anything.

    The model is run by its own code, with an attention of ours, over weights that are shared with
    `model`. `unfit_reason` says whether a model allows that; `make_engine` chooses accordingly.

    On a CPU the slots are split into lanes, a thread each, for so small operations gain more by
    several at a time than by several threads for one.

    Args:
        lanes: Threads; by default 1 on a GPU, and on a CPU as many as there are cores for the
            threads that `torch` takes for an operation (`OMP_NUM_THREADS` bounds them too).

    Attributes:
        batch_size: The most responses drawn at a time; halved where the device's memory does not
            suffice.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
        lanes: int | None = None,
    ) -> None:
        super().__init__(model, tokenizer, max_new_tokens, temperature, batch_size)
        count = min(batch_size, lanes or lane_count(model.device))
        self._forwards = [forward_of(sharing_weights(model, ATTENTION)) for _ in range(count)]
        self._threads = ThreadPoolExecutor(count, "rollwise-lane") if count > 1 else None
        vocabulary = model.config.get_text_config().vocab_size
        self._prompts = PromptStates(self._forwards[0], vocabulary, model.device)
        self._ended: list[Response] = []
        self._open_lanes()

    def _open_lanes(self) -> None:
        count = len(self._forwards)
        longest = int(self.context) if math.isfinite(self.context) else 2**20
        self._lanes = [
            Lane(
                forward,
                slots=self.batch_size // count + (i < self.batch_size % count),
                longest=longest,
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature,
                end_tokens=self._end_tokens,
            )
            for i, forward in enumerate(self._forwards)
        ]

    @property
    def free_slots(self) -> int:
        """Slots that no draw is in or waits for."""
        return max(0, sum(lane.free_slots for lane in self._lanes) - len(self._waiting))

    def wait(self) -> Sequence[Completion | LostDraw]:
        """Draw until some responses have ended; [] if there are none to draw."""
        while True:
            try:
                self._draw_some()
                responses, self._ended = self._ended, []
                return self._completions(responses) if responses else []
            except torch.OutOfMemoryError:
                if self.batch_size == len(self._lanes):
                    raise
                self._restart(max(len(self._lanes), self.batch_size // 2))
                logger.warning(
                    "the device's memory does not suffice; going on with %d responses at a time, "
                    "begun anew (set `engine.batch_size` so from the start)",
                    self.batch_size,
                )

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws and free their slots; returns the tokens that had been drawn of them."""
        cancelled = list(draws)
        for draw in cancelled:
            self._waiting.pop(draw, None)
        return sum(lane.cancel(cancelled) for lane in self._lanes)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; weights that it shares with the learner stay put.

        Responses under way are begun anew, so that each comes of one set of weights.
        """
        super().load_weights(weights)
        self._prompts.clear()
        if any(lane.drawing for lane in self._lanes):
            self._restart(self.batch_size)

    def _restart(self, batch_size: int) -> None:
        """Begin all draws anew, at most so many at a time."""
        for lane in self._lanes:
            self._waiting = {**lane.drawing, **self._waiting}
        self.batch_size = batch_size
        self._open_lanes()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _draw_some(self) -> None:
        """Let each lane draw until some of its responses have ended."""
        self._fill()
        busy = [lane for lane in self._lanes if lane.drawing]
        if self._threads is None:
            for lane in busy:
                self._ended += lane.draw_some()
            return
        running = [self._threads.submit(lane.draw_some) for lane in busy]
        wait_for(running)
        # Where one has failed, what the others have drawn is kept.
        for portion in sorted(running, key=lambda lane: lane.exception() is not None):
            self._ended += portion.result()

    def _fill(self) -> None:
        """Put draws that wait into free slots."""
        room = sum(lane.free_slots for lane in self._lanes)
        begun = list(itertools.islice(self._waiting, room))
        self._prompts.need({draw.key: self._waiting[draw] for draw in begun})
        for lane, share in zip(self._lanes, self._shares(len(begun)), strict=True):
            portion, begun = begun[:share], begun[share:]
            lane.fill({draw: self._waiting[draw] for draw in portion}, self._prompts)
            for draw in portion:
                del self._waiting[draw]

    def _shares(self, draws: int) -> list[int]:
        """Split draws over the lanes: evenly if they are many, else the emptiest lane first."""
        free = np.array([lane.free_slots for lane in self._lanes])
        if draws >= WORTH_A_LANE * len(free):
            ends = np.rint(np.cumsum(free) * draws / free.sum()).astype(int)
            return list(np.diff(ends, prepend=0).tolist())
        shares = np.zeros_like(free)
        for lane in np.argsort(-free, kind="stable"):
            shares[lane] = min(free[lane], draws - shares.sum())
        return list(shares.tolist())


def unfit_reason(model: PreTrainedModel) -> str | None:
    """Say why `model` cannot draw in slots; None if it can.

    It can if its attention goes through the interface of `transformers`, is causal, and needs
    nothing but keys, values and a window; whether that is so is tried on a few tokens.
    """
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention does not go through the interface of transformers"
    try:
        found, wanted = _logits_in_slots(model)
    except Exception as error:  # the model is anyone's code: whatever it raises, it does not fit
        return f"it fails in slots ({type(error).__name__}: {error})"
    tolerance = 1e-3 if wanted.dtype == torch.float32 else 0.1
    if not torch.allclose(
        found, wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max())
    ):
        return "its logits differ in slots"
    return None


@torch.inference_mode()
def _logits_in_slots(
    model: PreTrainedModel, prompt: int = 3, response: int = 3
) -> tuple[Tensor, Tensor]:
    """Logits of a few tokens, by slots and by the model's own attention."""
    total = prompt + response
    ids = torch.arange(1, total + 1, device=model.device)[None]
    ids %= model.config.get_text_config().vocab_size
    positions = torch.arange(total, device=model.device)[None]
    wanted = sharing_weights(model)(input_ids=ids, use_cache=False).logits[0, prompt:]
    forward = forward_of(sharing_weights(model, ATTENTION))
    prefill, cache = Prefill(), SlotCache(1, total)
    forward(ids[:, :prompt], positions[:, :prompt], prefill)
    cache.fill(np.array([0]), prefill.states)
    found = []
    for place in range(prompt, total):
        own = slice(place, place + 1)
        step = cache.begin_step(model.device)
        found.append(forward(ids[:, own], positions[:, own], step)[0, -1])
        cache.lengths += 1
    return torch.stack(found), wanted
