"""A continuous batch: the responses that one process draws together, one token each per step."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rollwise.engines.attention import ModelForward, Prefill, Slots
from rollwise.engines.kv_cache import SegmentedCache
from rollwise.engines.tokens import Drawn, TokenSampler, drawn_of
from rollwise.sampling import Draw

REPORTED_SHARE = 1 / 8
"""The share of the running responses that end before any are reported and their slots refilled."""

STEPS_AT_FIRST = 4
"""Steps between two reports until a response has ended."""

Prompt = tuple[int, ...]

KEPT_TOKENS = 65_536
"""Once prompts have more tokens than this, only those that are drawn from are kept."""

PREFILL_TOKENS = 8_192
"""The most tokens of prompts that are run together, padding included."""

PREFILL_LOGITS = 2**25
"""The most logits that are computed together when prompts are run."""


class ContinuousBatch:
    """Responses that are drawn together, one token each per step.

    Responses that have ended are reported a few at a time: when about `REPORTED_SHARE` of those
    running should have ended, judging by the lengths seen since the batch was last empty. That
    depends neither on a clock nor on what was drawn before, so a run can be repeated and resumed:
    what shares a batch decides how its logits are rounded.

    Attributes:
        drawing: Draw -> prompt, of the responses in flight.
    """

    def __init__(self, sampling: TokenSampler, slots: int) -> None:
        self._sampling, self._forward = sampling, ModelForward(sampling.model)
        self._prompts = PrefixCache(self._forward, sampling.model)
        self.open(slots)

    def open(self, slots: int) -> None:
        """Start over with `slots` free slots, and forget all prompts."""
        sampling = self._sampling
        device, shape = sampling.end_tokens.device, (slots, sampling.max_new_tokens)
        self._prompts.clear()
        self._cache = SegmentedCache(slots, sampling.longest)
        self.drawing: dict[Draw, Sequence[int]] = {}
        self._slot_of: dict[Draw, int] = {}
        self._draw_in: dict[int, Draw] = {}
        self._ended: list[int] = []
        self._begun: dict[Draw, Drawn] = {}
        self._drawn: Slots = np.zeros(slots, dtype=np.int64)
        self._begin_anew()
        self._limits: Slots = np.zeros(slots, dtype=np.int64)
        self._tokens = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._uniforms = torch.zeros(shape, dtype=torch.float64, device=device)

    def restart(self, slots: int) -> tuple[list[Drawn], dict[Draw, Sequence[int]], int]:
        """Start over with fewer slots, and keep what was drawn.

        Returns the responses that have ended, the other draws in flight with their prompts, and how
        many tokens are lost: none. Draws continue where they were once they are filled in again.
        """
        ended, waiting = self._report(), dict(self.drawing)
        drawn = self._drawn_in([self._slot_of[draw] for draw in waiting])
        begun = self._begun | {each.draw: each for each in drawn if each.tokens}
        self.open(slots)
        self._begun = begun
        return ended, waiting, 0

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
        for draw, prompt in draws.items():
            kept = self._begun.get(draw)
            by_prompt[*prompt, *(kept.tokens if kept else ())].append(draw)
        known = self._prompts.run(by_prompt)
        slots, logits, begun = [], [], []
        for prompt, members in by_prompt.items():
            indices = [self._occupy(draw, draws[draw]) for draw in members]
            states, following = known[prompt]
            begun.append((np.array(indices), states))
            logits.append(following.expand(len(members), -1))
            slots += indices
        self._cache.fill(begun)
        self._uniforms[slots] = self._sampling.uniforms([self._draw_in[slot] for slot in slots])
        self._take(np.array(slots), torch.cat(logits))

    @torch.inference_mode()
    def draw(self) -> list[Drawn]:
        """Draw one token per response in each of a few steps; return those that have ended."""
        steps = STEPS_AT_FIRST
        if self._responses_ended:
            steps = round(REPORTED_SHARE * self._tokens_drawn / self._responses_ended) or 1
        self._tokens_drawn += steps * len(self.drawing)
        for _ in range(steps):
            if len(self._ended) < len(self.drawing):
                self._step()
        return self._report()

    def _report(self) -> list[Drawn]:
        """Return the responses that have ended, and free their slots."""
        ended, self._ended = self._ended, []
        self._responses_ended += len(ended)
        responses = self._drawn_in(ended)
        self._vacate(ended)
        return responses

    def _drawn_in(self, slots: Sequence[int]) -> list[Drawn]:
        draws, lengths = [self._draw_in[slot] for slot in slots], self._drawn[slots].tolist()
        return drawn_of(draws, self._tokens[slots], self._logprobs[slots], lengths)

    @torch.inference_mode()
    def cancel(self, draw: Draw) -> int:
        """Give up a draw that was begun; returns the number of tokens drawn for it."""
        if begun := self._begun.pop(draw, None):
            return len(begun.tokens)
        if draw not in self._slot_of:
            return 0
        slot = self._slot_of[draw]
        self._cache.release(np.array([slot]))
        self._vacate([slot])
        return int(self._drawn[slot])

    def _occupy(self, draw: Draw, prompt: Sequence[int]) -> int:
        slot = self._free.pop()
        self.drawing[draw], self._slot_of[draw], self._draw_in[slot] = prompt, slot, draw
        begun, sampling = self._begun.pop(draw, None), self._sampling
        self._drawn[slot] = drawn = len(begun.tokens) if begun else 0
        if begun:
            self._tokens[slot, :drawn] = torch.tensor(begun.tokens)
            self._logprobs[slot, :drawn] = torch.from_numpy(begun.logprobs)
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


class PrefixCache:
    """Keys and values of a model's prompts, shared by all their draws, now and later."""

    def __init__(self, forward: ModelForward, model: PreTrainedModel) -> None:
        self._forward, self._device = forward, model.device
        self._vocabulary: int = model.config.get_text_config().vocab_size
        self._known: dict[Prompt, tuple[Tensor, Tensor]] = {}

    def clear(self) -> None:
        self._known.clear()

    @torch.inference_mode()
    def run(self, prompts: Collection[Prompt]) -> Mapping[Prompt, tuple[Tensor, Tensor]]:
        """Return the keys and values of prompts, and the logits of the token that follows each."""
        if sum(map(len, self._known)) > KEPT_TOKENS:
            self._known = {p: self._known[p] for p in prompts if p in self._known}
        missing = sorted((prompt for prompt in prompts if prompt not in self._known), key=len)
        for portion in self._portions(missing):
            self._run(portion)
        return self._known

    def _portions(self, prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
        """Split prompts, sorted by length, into portions that are run together."""
        most = max(1, math.isqrt(PREFILL_LOGITS // self._vocabulary))
        begin = 0
        for end in range(1, len(prompts) + 1):
            rows = end - begin
            whole = end == len(prompts) or (rows + 1) * len(prompts[end]) > PREFILL_TOKENS
            if whole or rows == most:
                yield prompts[begin:end]
                begin = end

    def _run(self, prompts: Sequence[Prompt]) -> None:
        """Run prompts together, padded at their ends, which nothing attends to."""
        device, lengths = self._device, [len(prompt) for prompt in prompts]
        ids = torch.zeros((len(prompts), max(lengths)), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        lasts, column = np.unique(np.array(lengths) - 1, return_inverse=True)
        prefill = Prefill()
        positions = torch.arange(ids.shape[1], device=device).expand(ids.shape)
        kept = torch.from_numpy(lasts).to(device)
        logits = self._forward(ids.to(device), positions, prefill, kept)
        states = prefill.states
        for row, prompt in enumerate(prompts):
            own = states[:, :, row : row + 1, :, : len(prompt)].clone()
            self._known[prompt] = own, logits[row, column[row]].clone()
