"""The built-in engine, for causal language models of `transformers`."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.attention import ModelForward, Prefill, sharing_weights
from rollwise.engines.batches import BatchEngine
from rollwise.engines.continuous import ContinuousBatch
from rollwise.engines.ends import end_tokens, text_of
from rollwise.engines.kv_cache import SegmentedCache
from rollwise.engines.probe import close, in_float32, plain_logits, refuse_sparse, trial_tokens
from rollwise.engines.settings import context_of
from rollwise.engines.tokens import Drawn, TokenSampler
from rollwise.engines.whole_batches import WholeBatch
from rollwise.errors import ModelError, PolicyError
from rollwise.sampling import Draw
from rollwise.step.response import Response

logger = logging.getLogger(__name__)

UNKNOWN = 2**20
"""The most tokens of a prompt and its response, where the model does not state a limit."""


class TransformersEngine(BatchEngine):
    """Draws up to `batch_size` responses together, by continuous batching if the model allows it.

    A response that has ended or was cancelled leaves its slot to the next draw while others
    continue, and draws of one prompt share its prefill. The model runs with our attention over
    shared weights. Models that do not allow that (`unfit_reason`) are drawn from in whole batches,
    which is slower, and the log says so.

    Each draw has its own random numbers, one for each token, so a response does not depend on what
    is drawn beside it (up to the rounding of the model's arithmetic).

    Args:
        model: A causal language model. It may be the learner's own object; otherwise
            `load_weights` keeps it up to date.
        tokenizer: Its tokenizer.
        max_new_tokens: Responses are cut here, and where the model's context ends.
        temperature: Sampling temperature; above 0.
        batch_size: The most responses drawn at a time; halved where the device's memory runs out.

    Raises:
        ModelError: Nothing is known to end a response, or `transformers` gives the model's
            responses other probabilities when it draws them than when it reads them.
    """

    slots: int

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.slots = model, tokenizer, batch_size
        refuse_sparse(model)
        self.context: int = context_of(model.config) or UNKNOWN
        ends = sorted(end_tokens(model.generation_config, tokenizer))
        self._end_tokens = torch.tensor(ends, device=model.device)
        kind: type[ContinuousBatch | WholeBatch] = ContinuousBatch
        if (reason := unfit_reason(model)) is not None:
            name = type(model).__name__
            logger.warning("%s draws in whole batches, which is slower: %s", name, reason)
            kind = WholeBatch
        sampling = TokenSampler(model, self.context, max_new_tokens, temperature, self._end_tokens)
        self._batch = kind(sampling, batch_size)
        self._waiting: dict[Draw, Sequence[int]] = {}

    def _begin(self, draw: Draw, prompt: Sequence[int]) -> None:
        if not 0 < len(prompt) < self.context:
            raise ValueError(
                f"prompt {draw.key!r} must have 1 to {self.context - 1} tokens, to leave room "
                f"for a response in the model's context; it has {len(prompt)}"
            )
        self._waiting[draw] = prompt

    def _advance(self) -> Iterable[tuple[Draw, Response]]:
        try:
            self._fill()
            return self._responses(self._batch.draw())
        except torch.OutOfMemoryError:
            if self.slots == 1:
                raise
            self.slots //= 2
            ended, drawing, lost = self._batch.restart(self.slots)
            self.lost_tokens += lost
            self._waiting = {**drawing, **self._waiting}
            torch.cuda.empty_cache()
            logger.warning(
                "the device is out of memory; continuing with %d responses at a time "
                "(set `engine.batch_size` to that from the start)",
                self.slots,
            )
            return self._responses(ended)

    def _abandon(self, draw: Draw) -> int:
        self._waiting.pop(draw, None)
        return self._batch.cancel(draw)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; tensors shared with the learner stay as they are."""
        own = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in weights.items():
                if own[name].data_ptr() != tensor.data_ptr():
                    own[name].copy_(tensor)
        self._batch.weights_changed()

    def sleep(self) -> None:
        """On a GPU, drop the keys and values of all rows, if no response is in flight."""
        if self.model.device.type == "cuda" and not self._batch.drawing:
            self._batch.open(self.slots)

    def limit_slots(self, slots: int) -> None:
        self.slots = min(self.slots, slots)
        self._batch.open(self.slots)

    def ignore_ends(self) -> bool:
        self._end_tokens.fill_(-1)
        return True

    def _responses(self, ended: Sequence[Drawn]) -> list[tuple[Draw, Response]]:
        """Decode finished responses; a `PolicyError` if a probability is not finite."""
        if not all(np.isfinite(drawn.logprobs).all() for drawn in ended):
            raise PolicyError("the policy's token probabilities are not finite")
        ends, found = set(self._end_tokens.tolist()), []
        for draw, tokens, logprobs in ended:
            text = text_of(self.tokenizer, tokens, ends)
            truncated = tokens[-1] not in ends
            found.append((draw, Response(tokens, logprobs, text, truncated)))
        return found

    def _fill(self) -> None:
        free = self.slots - len(self._batch.drawing)
        begun = dict(islice(self._waiting.items(), free))
        self._batch.fill(begun)
        for draw in begun:  # not before: memory may run out
            del self._waiting[draw]


def unfit_reason(model: PreTrainedModel) -> str | None:
    """Return why `model` cannot be drawn from by continuous batching; None if it can.

    It can if its attention goes through the interface of `transformers`, is causal, and needs
    only keys, values and a window. That is tried on a few tokens.
    """
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention does not go through the interface of transformers"
    try:
        with in_float32():
            found, wanted = _logits_in_slots(model)
    except Exception as error:  # a model may run any code; whatever it raises, it does not fit
        return f"it fails in slots ({type(error).__name__}: {error})"
    return None if close(found, wanted) else "its logits differ in slots"


@torch.inference_mode()
def _logits_in_slots(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Logits of three tokens after three others, by slots and by the model's own attention."""
    prompt, total = 3, 6
    tokens = trial_tokens(model, total)
    ids = torch.tensor([tokens], device=model.device)
    positions = torch.arange(total, device=model.device)[None]
    wanted = plain_logits(sharing_weights(model), tokens)[prompt:]
    forward = ModelForward(model)
    prefill, cache = Prefill(), SegmentedCache(1, total)
    forward(ids[:, :prompt], positions[:, :prompt], prefill)
    text = model.config.get_text_config()
    limited = any(getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size"))
    kinds = set(getattr(text, "layer_types", None) or ())
    if limited and kinds != {"full_attention"} and prefill.windows == {None}:
        raise ModelError("its window is in its masks alone")  # wider than what is tried here
    cache.fill([(np.array([0]), prefill.states)])
    found = []
    for position in range(prompt, total):
        own = slice(position, position + 1)
        step = cache.begin_step()
        found.append(forward(ids[:, own], positions[:, own], step)[0, -1])
        cache.lengths += 1
    return torch.stack(found), wanted
