"""A continuous batch: the responses that one process draws together, one token each per step."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rollwise.engines.attention import ModelForward, Slots
from rollwise.engines.kv_cache import BucketedCache
from rollwise.engines.prefixes import PrefixCache
from rollwise.engines.tokens import Response, Sampling, responses_of
from rollwise.sampling import Draw

REPORTED_SHARE = 1 / 8
"""The share of the running responses that end before any are reported and their slots refilled."""

STEPS_AT_FIRST = 4
"""Steps between two reports until a response has ended."""


class ContinuousBatch:
    """Responses that are drawn together, one token each per step.

    Responses that have ended are reported a few at a time: when about `REPORTED_SHARE` of those
    running should have ended, judging by the lengths seen since the batch was last empty. That
    depends neither on a clock nor on what was drawn before, so a run can be repeated and resumed:
    what shares a batch decides how its logits are rounded.

    Attributes:
        drawing: Draw -> prompt, of the responses in flight.
    """

    def __init__(self, sampling: Sampling, slots: int) -> None:
        self._sampling, self._forward = sampling, ModelForward(sampling.model)
        self._prompts = PrefixCache(self._forward, sampling.model)
        self.open(slots)

    def open(self, slots: int) -> None:
        """Start over with `slots` free slots, and forget all prompts."""
        sampling = self._sampling
        device, shape = sampling.end_tokens.device, (slots, sampling.max_new_tokens)
        self._prompts.clear()
        self._cache = BucketedCache(slots, sampling.longest)
        self.drawing: dict[Draw, Sequence[int]] = {}
        self._slot_of: dict[Draw, int] = {}
        self._draw_in: dict[int, Draw] = {}
        self._ended: list[int] = []
        self._drawn: Slots = np.zeros(slots, dtype=np.int64)
        self._begin_anew()
        self._limits: Slots = np.zeros(slots, dtype=np.int64)
        self._tokens = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._uniforms = torch.zeros(shape, device=device)

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def weights_changed(self) -> None:
        self._prompts.clear()

    def _begin_anew(self) -> None:
        """Forget the order in which slots came free, and how long responses were."""
        self._free = list(range(len(self._drawn)))
        self._tokens_drawn = self._responses_ended = 0

    @torch.inference_mode()
    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        """Begin draws, given their prompts; no more than there are free slots."""
        if not draws:
            return
        if not self.drawing:
            self._begin_anew()
        by_prompt = defaultdict(list)
        for draw in draws:
            by_prompt[tuple(draws[draw])].append(draw)
        self._prompts.run_missing(by_prompt)
        slots, logits = [], []
        for prompt, members in by_prompt.items():
            indices = [self._occupy(draw, prompt) for draw in members]
            states, following = self._prompts[prompt]
            self._cache.fill(np.array(indices), states)
            logits.append(following.expand(len(members), -1))
            slots += indices
        self._uniforms[slots] = self._sampling.uniforms([self._draw_in[slot] for slot in slots])
        self._take(np.array(slots), torch.cat(logits))

    @torch.inference_mode()
    def draw(self) -> list[Response]:
        """Draw one token per response in each of a few steps; return those that have ended."""
        steps = STEPS_AT_FIRST
        if self._responses_ended:
            steps = round(REPORTED_SHARE * self._tokens_drawn / self._responses_ended) or 1
        self._tokens_drawn += steps * len(self.drawing)
        for _ in range(steps):
            if len(self._ended) < len(self.drawing):
                self._step()
        ended, self._ended = self._ended, []
        self._responses_ended += len(ended)
        draws, lengths = [self._draw_in[slot] for slot in ended], self._drawn[ended].tolist()
        responses = responses_of(draws, self._tokens[ended], self._logprobs[ended], lengths)
        self._vacate(ended)
        return responses

    @torch.inference_mode()
    def cancel(self, draws: Iterable[Draw]) -> int:
        """Free the slots of those draws that are here; returns the tokens drawn for them."""
        slots = [self._slot_of[draw] for draw in draws if draw in self._slot_of]
        if slots:
            self._cache.release(np.array(slots))
            self._vacate(slots)
        return int(self._drawn[slots].sum())

    def _occupy(self, draw: Draw, prompt: Sequence[int]) -> int:
        slot = self._free.pop()
        self.drawing[draw], self._slot_of[draw], self._draw_in[slot] = prompt, slot, draw
        self._drawn[slot] = 0
        sampling = self._sampling
        self._limits[slot] = min(sampling.max_new_tokens, sampling.longest - len(prompt))
        return slot

    def _vacate(self, slots: Iterable[int]) -> None:
        for slot in slots:
            draw = self._draw_in.pop(slot)
            del self.drawing[draw], self._slot_of[draw]
            self._free.append(slot)

    def _step(self) -> None:
        """Draw one token of each response."""
        device = self._tokens.device
        step, order = self._cache.begin_step(), self._cache.order
        rows = torch.from_numpy(order).to(device)
        latest = torch.from_numpy(self._drawn[order] - 1).to(device)
        positions = torch.from_numpy(self._cache.lengths[order]).to(device)
        tokens = self._tokens[rows, latest]
        logits = self._forward(tokens[:, None], positions[:, None], step)[:, -1]
        self._cache.lengths[order] += 1
        self._take(order, logits)

    def _take(self, slots: Slots, logits: Tensor) -> None:
        """Sample the next token in each of `slots`; responses that it ends leave the cache."""
        rows = torch.from_numpy(slots).to(logits.device)
        columns = torch.from_numpy(self._drawn[slots]).to(logits.device)
        tokens, logprobs = self._sampling.sample(logits, self._uniforms[rows, columns])
        self._tokens[rows, columns], self._logprobs[rows, columns] = tokens, logprobs
        self._drawn[slots] += 1
        at_end = torch.isin(tokens, self._sampling.end_tokens).cpu().numpy()
        ended = slots[at_end | (self._drawn[slots] >= self._limits[slots])]
        if len(ended):
            self._cache.release(ended)
            self._ended += ended.tolist()
