"""The built-in engine: continuous generation with causal language models of `transformers`."""

import copy
import itertools
import logging
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.batches import BatchEngine
from rollwise.engines.engine import Completion, Engine, LostDraw
from rollwise.engines.local import LocalEngine, sample, uniforms_of
from rollwise.engines.slots import ATTENTION, Prefill, SlotCache, Slots
from rollwise.sampling import Draw
from rollwise.sampling.pool import Key

logger = logging.getLogger(__name__)

REPORTED_SHARE = 1 / 16
"""So many of the running responses end before they are reported and their slots filled again."""

KEPT_TOKENS = 65_536
"""Tokens of prompts whose keys and values are kept for further draws, at most."""

PREFILL_TOKENS = 8_192
"""Tokens of prompts that are run at a time, padding included, at most."""

PREFILL_LOGITS = 2**25
"""Logits that are computed at a time when prompts are run, at most."""


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


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What is known of a prompt: its keys and values, and the logits of the next token."""

    tokens: tuple[int, ...]
    states: Tensor
    logits: Tensor


class TransformersEngine(LocalEngine):
    """Draws up to `batch_size` responses at a time, each in a slot that is filled again at once.

    A response that has ended or was cancelled makes room for the next draw while others go on.
    Draws of one prompt share its prefill, at once or later. Keys and values stay where they are,
    by lengths, so that neither copies of the cache nor much padding cost anything.

    The model is run by its own code, with an attention of ours, over weights that are shared with
    `model`. `unfit_reason` says whether a model allows that; `make_engine` chooses accordingly.

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
    ) -> None:
        super().__init__(model, tokenizer, max_new_tokens, temperature, batch_size)
        self._twin = _sharing_weights(model, ATTENTION)
        self._prefixes: OrderedDict[Key, _Prefix] = OrderedDict()
        self._open_slots()

    def _open_slots(self) -> None:
        count, device = self.batch_size, self.model.device
        longest = self.context if math.isfinite(self.context) else 2**20
        self._cache = SlotCache(count, int(longest))
        self._drawing: dict[Draw, int] = {}
        self._draw_in: dict[int, Draw] = {}
        self._free = list(range(count))
        self._drawn: Slots = np.zeros(count, dtype=np.int64)
        self._limits: Slots = np.zeros(count, dtype=np.int64)
        self._prompts: dict[Draw, Sequence[int]] = {}
        shape = (count, self.max_new_tokens)
        self._tokens = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._uniforms = torch.zeros(shape, device=device)

    @property
    def free_slots(self) -> int:
        """Slots that no draw is in or waits for."""
        return max(0, self.batch_size - len(self._drawing) - len(self._waiting))

    @torch.inference_mode()
    def wait(self) -> Sequence[Completion | LostDraw]:
        """Draw until some responses have ended; [] if there are none to draw."""
        while True:
            try:
                return self._draw_some()
            except torch.OutOfMemoryError:
                if self.batch_size == 1:
                    raise
                self._restart(self.batch_size // 2)
                logger.warning(
                    "the device's memory does not suffice; going on with %d responses at a time, "
                    "begun anew (set `engine.batch_size` so from the start)",
                    self.batch_size,
                )

    @torch.inference_mode()
    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws and free their slots; returns the tokens that had been drawn of them."""
        slots = []
        for draw in draws:
            self._waiting.pop(draw, None)
            if draw in self._drawing:
                slots.append(self._drawing[draw])
        self._cache.release(np.array(slots, dtype=np.int64))
        self._vacate(slots)
        return int(self._drawn[slots].sum())

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; weights that it shares with the learner stay put.

        Responses under way are begun anew, so that each comes of one set of weights.
        """
        super().load_weights(weights)
        self._prefixes.clear()
        self._restart(self.batch_size)

    def _restart(self, batch_size: int) -> None:
        """Begin all draws anew, at most so many at a time."""
        self._waiting = {**self._prompts, **self._waiting}
        if self._drawing or batch_size != self.batch_size:
            self.batch_size = batch_size
            self._open_slots()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _draw_some(self) -> list[Completion]:
        ended = self._fill()
        if not self._drawing:
            return []
        enough = max(1, int(len(self._drawing) * REPORTED_SHARE))
        while len(ended) < enough:
            ended += self._step()
        return self._report(ended)

    def _fill(self) -> list[int]:
        """Put draws that wait into free slots; returns those whose first token ends them."""
        draws = list(itertools.islice(self._waiting, len(self._free)))
        if not draws:
            return []
        by_prompt = defaultdict(list)
        for draw in draws:
            by_prompt[draw.key].append(draw)
        self._prefill({key: self._waiting[draws[0]] for key, draws in by_prompt.items()})
        slots, logits = [], []
        for key, members in by_prompt.items():
            places = [self._occupy(draw) for draw in members]
            self._cache.fill(np.array(places), self._prefixes[key].states)
            logits.append(self._prefixes[key].logits.expand(len(members), -1))
            slots += places
        draws = [self._draw_in[slot] for slot in slots]
        uniforms = torch.from_numpy(uniforms_of(draws, self.max_new_tokens))
        self._uniforms[slots] = uniforms.to(self._uniforms.device)
        return self._take(np.array(slots), torch.cat(logits))

    def _occupy(self, draw: Draw) -> int:
        slot = self._free.pop()
        self._drawing[draw], self._draw_in[slot] = slot, draw
        self._prompts[draw] = prompt = self._waiting.pop(draw)
        self._drawn[slot], self._limits[slot] = 0, self._limit(prompt)
        return slot

    def _vacate(self, slots: Iterable[int]) -> None:
        for slot in slots:
            draw = self._draw_in.pop(slot)
            del self._drawing[draw], self._prompts[draw]
            self._free.append(slot)

    def _step(self) -> list[int]:
        """Draw one token in each slot that is in use; returns those that it ends."""
        step = self._cache.begin_step(self._tokens.device)
        order = self._cache.order
        rows = torch.from_numpy(order).to(self._tokens.device)
        latest = torch.from_numpy(self._drawn[order] - 1).to(self._tokens.device)
        positions = torch.from_numpy(self._cache.lengths[order]).to(self._tokens.device)
        logits = self._twin(
            input_ids=self._tokens[rows, latest][:, None],
            position_ids=positions[:, None],
            use_cache=False,
            slots=step,
        ).logits[:, -1]
        self._cache.lengths[order] += 1
        return self._take(order, logits)

    def _take(self, slots: Slots, logits: Tensor) -> list[int]:
        """Draw the next token in each of `slots`; returns those that it ends, out of the cache."""
        rows = torch.from_numpy(slots).to(logits.device)
        columns = torch.from_numpy(self._drawn[slots]).to(logits.device)
        tokens, logprobs = sample(logits / self.temperature, self._uniforms[rows, columns])
        self._tokens[rows, columns], self._logprobs[rows, columns] = tokens, logprobs
        self._drawn[slots] += 1
        at_end = torch.isin(tokens, self._end_tokens).cpu().numpy()
        ended = slots[at_end | (self._drawn[slots] >= self._limits[slots])]
        if len(ended):
            self._cache.release(ended)
        found: list[int] = ended.tolist()
        return found

    def _report(self, ended: list[int]) -> list[Completion]:
        """Hand over the responses in these slots, which are free again."""
        draws = [self._draw_in[slot] for slot in ended]
        lengths = self._drawn[ended].tolist()
        rows = self._tokens[ended].tolist()
        responses = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        completions = self._completions(draws, responses, self._logprobs[ended])
        self._vacate(ended)
        return completions

    def _prefill(self, prompts: Mapping[Key, Sequence[int]]) -> None:
        """Make sure that what these prompts begin with is known; older prompts may be forgotten."""
        missing = []
        for key, prompt in prompts.items():
            known = self._prefixes.get(key)
            if known is None or known.tokens != tuple(prompt):
                missing.append(key)
            else:
                self._prefixes.move_to_end(key)
        missing.sort(key=lambda key: len(prompts[key]))
        for keys in self._portions(missing, prompts):
            self._run([(key, tuple(prompts[key])) for key in keys])
        kept = sum(len(prefix.tokens) for prefix in self._prefixes.values())
        while len(self._prefixes) > len(prompts) and (
            kept > KEPT_TOKENS or len(self._prefixes) > self.batch_size
        ):
            kept -= len(self._prefixes.popitem(last=False)[1].tokens)

    def _portions(
        self, keys: Sequence[Key], prompts: Mapping[Key, Sequence[int]]
    ) -> Iterator[Sequence[Key]]:
        """Split prompts, the shortest first, into portions that are run at a time."""
        vocabulary = self._twin.config.get_text_config().vocab_size
        most = max(1, math.isqrt(PREFILL_LOGITS // vocabulary))
        begin = 0
        for end in range(1, len(keys) + 1):
            rows = end - begin
            whole = end == len(keys) or (rows + 1) * len(prompts[keys[end]]) > PREFILL_TOKENS
            if whole or rows == most:
                yield keys[begin:end]
                begin = end

    def _run(self, prompts: Sequence[tuple[Key, tuple[int, ...]]]) -> None:
        """Run prompts at once, padded at their ends, which nothing looks at."""
        device = self.model.device
        lengths = [len(tokens) for _, tokens in prompts]
        ids = torch.zeros((len(prompts), max(lengths)), dtype=torch.long)
        for row, (_, tokens) in enumerate(prompts):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        lasts, column = np.unique(np.array(lengths) - 1, return_inverse=True)
        prefill = Prefill()
        logits = self._twin(
            input_ids=ids.to(device),
            position_ids=torch.arange(ids.shape[1], device=device).expand(ids.shape),
            use_cache=False,
            logits_to_keep=torch.from_numpy(lasts).to(device),
            slots=prefill,
        ).logits
        states = prefill.states
        for row, (key, tokens) in enumerate(prompts):
            own = states[:, :, row : row + 1, :, : len(tokens)].clone()
            self._prefixes[key] = _Prefix(tokens, own, logits[row, column[row]].clone())
            self._prefixes.move_to_end(key)


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
    wanted = _sharing_weights(model)(input_ids=ids, use_cache=False).logits[0, prompt:]
    twin, prefill, cache = _sharing_weights(model, ATTENTION), Prefill(), SlotCache(1, total)
    twin(
        input_ids=ids[:, :prompt],
        position_ids=positions[:, :prompt],
        use_cache=False,
        slots=prefill,
    )
    cache.fill(np.array([0]), prefill.states)
    found = []
    for place in range(prompt, total):
        output = twin(
            input_ids=ids[:, place : place + 1],
            position_ids=positions[:, place : place + 1],
            use_cache=False,
            slots=cache.begin_step(model.device),
        )
        cache.lengths += 1
        found.append(output.logits[0, -1])
    return torch.stack(found), wanted


def _sharing_weights(model: PreTrainedModel, attention: str | None = None) -> PreTrainedModel:
    """Copy a model's structure, to be run in its own way; weights and buffers are the same."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    twin: PreTrainedModel = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
    if attention is not None:
        twin.set_attn_implementation(attention)
    return twin
