"""A lane: responses that one process draws side by side, a token each at a time."""

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rollwise.engines.attention import Prefill, Slots
from rollwise.engines.decoder import Forward
from rollwise.engines.engine import Prompts
from rollwise.engines.local import Response, sample, uniforms_of
from rollwise.engines.slots import Cache
from rollwise.sampling import Draw
from rollwise.sampling.pool import Key

KEPT_TOKENS = 65_536
"""Tokens of prompts whose keys and values are kept for further draws, at most."""

PREFILL_TOKENS = 8_192
"""Tokens of prompts that are run at a time, padding included, at most."""

PREFILL_LOGITS = 2**25
"""Logits that are computed at a time when prompts are run, at most."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What is known of a prompt: its keys and values, and the logits of the next token."""

    tokens: tuple[int, ...]
    states: Tensor
    logits: Tensor


class PromptStates:
    """Keys and values of prompts, for all their draws, at once or later.

    Args:
        forward: Runs the model.
        vocabulary: How many logits a token has.
        device: Where the model is.
    """

    def __init__(self, forward: Forward, vocabulary: int, device: torch.device) -> None:
        self._forward, self._vocabulary, self._device = forward, vocabulary, device
        self._known: OrderedDict[Key, _Prefix] = OrderedDict()

    def __getitem__(self, key: Key) -> _Prefix:
        return self._known[key]

    def clear(self) -> None:
        """Forget all, say because the weights are others now."""
        self._known.clear()

    @torch.inference_mode()
    def need(self, prompts: Prompts) -> None:
        """Make sure that these prompts are known; the oldest others may be forgotten."""
        missing = []
        for key, prompt in prompts.items():
            known = self._known.get(key)
            if known is None or known.tokens != tuple(prompt):
                missing.append(key)
            else:
                self._known.move_to_end(key)
        if not missing:
            return
        missing.sort(key=lambda key: len(prompts[key]))
        for keys in self._portions(missing, prompts):
            self._run([(key, tuple(prompts[key])) for key in keys])
        kept = sum(len(prefix.tokens) for prefix in self._known.values())
        while kept > KEPT_TOKENS and len(self._known) > len(prompts):
            kept -= len(self._known.popitem(last=False)[1].tokens)

    def _portions(self, keys: Sequence[Key], prompts: Prompts) -> Iterator[Sequence[Key]]:
        """Split prompts, the shortest first, into portions that are run at a time."""
        most = max(1, math.isqrt(PREFILL_LOGITS // self._vocabulary))
        begin = 0
        for end in range(1, len(keys) + 1):
            rows = end - begin
            whole = end == len(keys) or (rows + 1) * len(prompts[keys[end]]) > PREFILL_TOKENS
            if whole or rows == most:
                yield keys[begin:end]
                begin = end

    def _run(self, prompts: Sequence[tuple[Key, tuple[int, ...]]]) -> None:
        """Run prompts at once, padded at their ends, which nothing looks at."""
        device, lengths = self._device, [len(tokens) for _, tokens in prompts]
        ids = torch.zeros((len(prompts), max(lengths)), dtype=torch.long)
        for row, (_, tokens) in enumerate(prompts):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        lasts, column = np.unique(np.array(lengths) - 1, return_inverse=True)
        prefill = Prefill()
        positions = torch.arange(ids.shape[1], device=device).expand(ids.shape)
        kept = torch.from_numpy(lasts).to(device)
        logits = self._forward(ids.to(device), positions, prefill, kept)
        states = prefill.states
        for row, (key, tokens) in enumerate(prompts):
            own = states[:, :, row : row + 1, :, : len(tokens)].clone()
            self._known[key] = _Prefix(tokens, own, logits[row, column[row]].clone())
            self._known.move_to_end(key)


class Lane:
    """Slots, and the responses that are being drawn in them.

    Args:
        forward: Runs the model.
        vocabulary: How many logits a token has.
        make_cache: Makes what keeps the keys and values of so many responses.
        slots: The most responses at a time.
        longest: The most tokens of a prompt and its response.
        max_new_tokens: The most tokens of a response.
        temperature: Of sampling.
        end_tokens: Tokens that end a response.

    Attributes:
        drawing: Draw -> prompt, of the responses under way.
    """

    def __init__(
        self,
        forward: Forward,
        vocabulary: int,
        make_cache: Callable[[int], Cache],
        slots: int,
        longest: int,
        max_new_tokens: int,
        temperature: float,
        end_tokens: Tensor,
    ) -> None:
        self._forward, self._temperature, self._end_tokens = forward, temperature, end_tokens
        self._make_cache = make_cache
        self._longest, self._max_new_tokens = longest, max_new_tokens
        self._prompts = PromptStates(forward, vocabulary, end_tokens.device)
        self.open(slots)

    def open(self, slots: int) -> None:
        """Begin anew with so many slots, all of them free, and forget all prompts."""
        device, shape = self._end_tokens.device, (slots, self._max_new_tokens)
        self._prompts.clear()
        self._cache = self._make_cache(slots)
        self.drawing: dict[Draw, Sequence[int]] = {}
        self._slot_of: dict[Draw, int] = {}
        self._draw_in: dict[int, Draw] = {}
        self._free = list(range(slots))
        self._ended: list[int] = []
        self._drawn: Slots = np.zeros(slots, dtype=np.int64)
        self._limits: Slots = np.zeros(slots, dtype=np.int64)
        self._tokens = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._uniforms = torch.zeros(shape, device=device)

    @property
    def free_slots(self) -> int:
        """Slots that nothing is drawn in."""
        return len(self._free)

    def forget_prompts(self) -> None:
        """Forget what is known of prompts, for the weights are others now."""
        self._prompts.clear()

    @torch.inference_mode()
    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        """Begin draws, given their prompts; no more than there are free slots."""
        if not draws:
            return
        by_prompt = defaultdict(list)
        for draw in draws:
            by_prompt[draw.key].append(draw)
        self._prompts.need({key: draws[members[0]] for key, members in by_prompt.items()})
        slots, logits = [], []
        for key, members in by_prompt.items():
            places = [self._occupy(draw, draws[draw]) for draw in members]
            self._cache.fill(np.array(places), self._prompts[key].states)
            logits.append(self._prompts[key].logits.expand(len(members), -1))
            slots += places
        uniforms = uniforms_of([self._draw_in[slot] for slot in slots], self._max_new_tokens)
        self._uniforms[slots] = torch.from_numpy(uniforms).to(self._uniforms.device)
        self._take(np.array(slots), torch.cat(logits))

    @torch.inference_mode()
    def draw_some(self, steps: int) -> list[Response]:
        """Draw so many tokens of each response, and hand over those that end; they leave."""
        for _ in range(steps):
            if len(self._ended) < len(self.drawing):
                self._step()
        ended, self._ended = self._ended, []
        rows = zip(
            self._tokens[ended].tolist(),
            self._logprobs[ended].cpu().numpy(),
            self._drawn[ended].tolist(),
            strict=True,
        )
        draws = [self._draw_in[slot] for slot in ended]
        self._vacate(ended)
        return [
            Response(draw, tokens[:length], logprobs[:length].copy())
            for draw, (tokens, logprobs, length) in zip(draws, rows, strict=True)
        ]

    @torch.inference_mode()
    def cancel(self, draws: Iterable[Draw]) -> int:
        """Free the slots of draws, where they are here; returns the tokens drawn in them."""
        slots = [self._slot_of[draw] for draw in draws if draw in self._slot_of]
        if slots:
            self._cache.release(np.array(slots))
            self._vacate(slots)
        return int(self._drawn[slots].sum())

    def _occupy(self, draw: Draw, prompt: Sequence[int]) -> int:
        slot = self._free.pop()
        self.drawing[draw], self._slot_of[draw], self._draw_in[slot] = prompt, slot, draw
        self._drawn[slot] = 0
        self._limits[slot] = min(self._max_new_tokens, self._longest - len(prompt))
        return slot

    def _vacate(self, slots: Iterable[int]) -> None:
        for slot in slots:
            draw = self._draw_in.pop(slot)
            del self.drawing[draw], self._slot_of[draw]
            self._free.append(slot)

    def _step(self) -> None:
        """Draw one token in each slot that is in use."""
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
        """Draw the next token in each of `slots`; those that it ends leave the cache."""
        rows = torch.from_numpy(slots).to(logits.device)
        columns = torch.from_numpy(self._drawn[slots]).to(logits.device)
        tokens, logprobs = sample(logits / self._temperature, self._uniforms[rows, columns])
        self._tokens[rows, columns], self._logprobs[rows, columns] = tokens, logprobs
        self._drawn[slots] += 1
        at_end = torch.isin(tokens, self._end_tokens).cpu().numpy()
        ended = slots[at_end | (self._drawn[slots] >= self._limits[slots])]
        if len(ended):
            self._cache.release(ended)
            self._ended += ended.tolist()
