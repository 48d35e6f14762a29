"""The built-in engine: continuous generation with causal language models of `transformers`."""

import itertools
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.attention import ATTENTION, Prefill, sharing_weights
from rollwise.engines.batches import BatchEngine
from rollwise.engines.decoder import forward_of
from rollwise.engines.engine import Completion, Engine, LostDraw
from rollwise.engines.forked_lane import CAN_FORK, ForkedLane, MirroredModel
from rollwise.engines.lanes import Lane
from rollwise.engines.local import LocalEngine, Response, is_compiled, lane_count
from rollwise.engines.slots import Cache, SlotCache
from rollwise.sampling import Draw

logger = logging.getLogger(__name__)

WORTH_A_LANE = 8
"""Draws that are begun at a time are split over the lanes if each gets at least so many: a step of
few rows costs nearly what one of more does."""

REPORTED_SHARE = 1 / 8
"""So many of the running responses end before they are reported and their slots filled again."""

STEPS_AT_FIRST = 4
"""Tokens that are drawn at a time until a response has ended."""


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

    On a CPU the slots are split into lanes, a process each, for so small operations gain more by
    several at a time than by several threads for one. One lane is drawn in this process, the others
    are forked from it and draw by a copy of the weights in memory that all share. Where Numba is
    installed, what is small in float32 is compiled.

    Args:
        lanes: How many; by default as many as there are cores (`OMP_NUM_THREADS` bounds them too)
            on a CPU under Linux where an operation takes one thread, else 1.

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
        own, *others = _split(batch_size, lanes or _default_lanes(model.device))
        self._mirror = MirroredModel(model) if others else None
        self._forked = [
            ForkedLane(self._make_lane(sharing_weights(self._mirror.model, ATTENTION), slots))
            for slots in others
            if self._mirror is not None
        ]
        self._own = self._make_lane(sharing_weights(model, ATTENTION), own)
        self._ended: list[Response] = []
        self._row_steps = self._responses = 0

    def _make_lane(self, twin: PreTrainedModel, slots: int) -> Lane:
        longest = int(self.context) if math.isfinite(self.context) else 2**20
        return Lane(
            forward_of(twin),
            vocabulary=twin.config.get_text_config().vocab_size,
            make_cache=_cache_maker(twin, longest),
            slots=slots,
            longest=longest,
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            end_tokens=self._end_tokens,
        )

    @property
    def _lanes(self) -> list[Lane | ForkedLane]:
        return [*self._forked, self._own]

    @property
    def _drawing(self) -> int:
        """Responses under way."""
        return sum(len(lane.drawing) for lane in self._lanes)

    @property
    def free_slots(self) -> int:
        """Slots that no draw is in or waits for."""
        return max(0, sum(lane.free_slots for lane in self._lanes) - len(self._waiting))

    def wait(self) -> Sequence[Completion | LostDraw]:
        """Draw until some responses have ended; [] if there are none to draw."""
        while True:
            try:
                while not self._ended and (self._waiting or self._drawing):
                    self._draw_some()
                self._go_on_elsewhere()
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
        cancelled = [draw for draw in draws if self._waiting.pop(draw, None) is None]
        return sum(lane.cancel(cancelled) for lane in self._lanes) if cancelled else 0

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; weights that it shares with the learner stay put.

        Responses under way are begun anew, so that each comes of one set of weights.
        """
        super().load_weights(weights)
        for lane in self._lanes:
            lane.forget_prompts()
        if self._drawing:
            self._restart(self.batch_size)
        self._row_steps = self._responses = 0

    def _restart(self, batch_size: int) -> None:
        """Begin all draws anew, at most so many at a time."""
        self.batch_size = batch_size
        for lane, slots in zip(self._lanes, _split(batch_size, len(self._lanes)), strict=True):
            self._waiting = {**lane.drawing, **self._waiting}
            lane.open(slots)
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _draw_some(self) -> None:
        """Let each lane draw until some of its responses should have ended."""
        if self._mirror is not None and not self._drawing:
            self._mirror.update()
        self._fill()
        self._go_on_elsewhere()
        steps, before = self._steps(), len(self._ended)
        self._row_steps += steps * len(self._own.drawing)
        try:
            self._ended += self._own.draw_some(steps)
        finally:
            for lane in self._forked:
                self._ended += lane.drawn()
        self._responses += len(self._ended) - before

    def _go_on_elsewhere(self) -> None:
        """Have the other lanes draw meanwhile, where they do not yet."""
        steps = self._steps()
        for lane in self._forked:
            if lane.drawing and not lane.is_drawing:
                lane.begin_to_draw(steps)
                self._row_steps += steps * len(lane.drawing)

    def _steps(self) -> int:
        """Steps in which about `REPORTED_SHARE` of the responses end, by those that did so far.

        All lanes take as many, and each the same in every run of a script.
        """
        if not self._responses:
            return STEPS_AT_FIRST
        return max(1, round(REPORTED_SHARE * self._row_steps / self._responses))

    def _fill(self) -> None:
        """Put draws that wait into free slots; those of a prompt side by side."""
        room = sum(lane.free_slots for lane in self._lanes)
        by_prompt = defaultdict(list)
        for draw in itertools.islice(self._waiting, room):
            by_prompt[draw.key].append(draw)
        begun = list(itertools.chain.from_iterable(by_prompt.values()))
        for lane, share in zip(self._lanes, self._shares(len(begun)), strict=True):
            portion, begun = begun[:share], begun[share:]
            lane.fill({draw: self._waiting[draw] for draw in portion})
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


def _default_lanes(device: torch.device) -> int:
    """Several where each can take one thread, for only one outlives a fork, and that on Linux."""
    return lane_count(device) if CAN_FORK and torch.get_num_threads() == 1 else 1


def _split(slots: int, lanes: int) -> list[int]:
    """Split slots evenly over at most so many lanes, one each at least."""
    lanes = min(slots, lanes)
    return [slots // lanes + (lane < slots % lanes) for lane in range(lanes)]


def _cache_maker(model: PreTrainedModel, longest: int) -> Callable[[int], Cache]:
    """Choose what keeps the keys and values of so many responses of up to `longest` tokens."""
    if is_compiled(model):
        from rollwise.engines.pages import PagedCache  # Numba takes long to import

        return PagedCache
    return partial(SlotCache, longest=longest, device=model.device)


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
    prefill, cache = Prefill(), _cache_maker(model, total)(1)
    forward(ids[:, :prompt], positions[:, :prompt], prefill)
    cache.fill(np.array([0]), prefill.states)
    found = []
    for place in range(prompt, total):
        own = slice(place, place + 1)
        step = cache.begin_step()
        found.append(forward(ids[:, own], positions[:, own], step)[0, -1])
        cache.lengths += 1
    return torch.stack(found), wanted
