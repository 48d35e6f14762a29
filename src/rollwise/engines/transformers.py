"""The built-in engine, for causal language models of `transformers`."""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.attention import ModelForward, Prefill, sharing_weights
from rollwise.engines.continuous import ContinuousBatch
from rollwise.engines.engine import Engine
from rollwise.engines.kv_cache import BucketedCache
from rollwise.engines.settings import context_of, end_tokens
from rollwise.engines.tokens import Response, Sampling
from rollwise.engines.whole_batches import WholeBatch
from rollwise.errors import ModelError, PolicyError
from rollwise.sampling import Draw
from rollwise.step.outcomes import Completion, Prompts

logger = logging.getLogger(__name__)

UNKNOWN = 2**20
"""The most tokens of a prompt and its response, where the model does not state a limit."""


class TransformersEngine(Engine):
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
        ValueError: Neither the model nor the tokenizer has an end-of-sequence token.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
    ) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.context: int = context_of(model.config) or UNKNOWN
        ends = sorted(end_tokens(model.generation_config, tokenizer))
        self._end_tokens = torch.tensor(ends, device=model.device)
        kind: type[ContinuousBatch | WholeBatch] = ContinuousBatch
        if (reason := unfit_reason(model)) is not None:
            name = type(model).__name__
            logger.warning("%s draws in whole batches, which is slower: %s", name, reason)
            kind = WholeBatch
        sampling = Sampling(model, self.context, max_new_tokens, temperature, self._end_tokens)
        self._batch = kind(sampling, batch_size)
        self._waiting: dict[Draw, Sequence[int]] = {}

    @property
    def free_slots(self) -> int:
        """Slots that neither hold a response nor are needed by a waiting draw."""
        return max(0, self._batch.free_slots - len(self._waiting))

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws.

        Raises:
            ValueError: A prompt is empty, or leaves no room for a response in the model's context.
        """
        for draw in draws:
            length = len(prompts[draw.key])
            if not 0 < length < self.context:
                raise ValueError(
                    f"prompt {draw.key!r} must have 1 to {self.context - 1} tokens, to leave room "
                    f"for a response in the model's context; it has {length}"
                )
        self._waiting.update((draw, prompts[draw.key]) for draw in draws)

    def wait(self) -> Sequence[Completion]:
        while True:
            try:
                responses = list[Response]()
                while not responses and (self._waiting or self._batch.drawing):
                    self._fill()
                    responses = self._batch.draw()
                return self._completions(responses) if responses else []
            except torch.OutOfMemoryError:
                if self.batch_size == 1:
                    raise
                self.batch_size //= 2
                self._waiting = {**self._batch.drawing, **self._waiting}
                self._batch.open(self.batch_size)
                torch.cuda.empty_cache()
                logger.warning(
                    "the device is out of memory; starting over with %d responses at a time "
                    "(set `engine.batch_size` to that from the start)",
                    self.batch_size,
                )

    def cancel(self, draws: Iterable[Draw]) -> int:
        cancelled = [draw for draw in draws if self._waiting.pop(draw, None) is None]
        return self._batch.cancel(cancelled) if cancelled else 0

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
            self._batch.open(self.batch_size)

    def ignore_ends(self) -> bool:
        self._end_tokens.fill_(-1)
        return True

    def _completions(self, responses: Sequence[Response]) -> list[Completion]:
        """Decode finished responses; a `PolicyError` if a probability is not finite."""
        if not all(np.isfinite(response.logprobs).all() for response in responses):
            raise PolicyError("the policy's token probabilities are not finite")
        ends = set(self._end_tokens.tolist())
        texts = self.tokenizer.batch_decode(
            [response.tokens for response in responses], skip_special_tokens=True
        )
        return [
            Completion(r.draw, r.tokens, r.logprobs, text, truncated=r.tokens[-1] not in ends)
            for r, text in zip(responses, texts, strict=True)
        ]

    def _fill(self) -> None:
        begun = dict(itertools.islice(self._waiting.items(), self._batch.free_slots))
        self._batch.fill(begun)
        for draw in begun:
            del self._waiting[draw]


def unfit_reason(model: PreTrainedModel) -> str | None:
    """Say why `model` cannot be drawn from by continuous batching; None if it can.

    It can if its attention goes through the interface of `transformers`, is causal, and needs
    only keys, values and a window. That is tried on a few tokens.
    """
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention does not go through the interface of transformers"
    try:
        found, wanted = _logits_in_slots(model)
    except Exception as error:  # a model may run any code; whatever it raises, it does not fit
        return f"it fails in slots ({type(error).__name__}: {error})"
    tolerance = 1e-3 if wanted.dtype == torch.float32 else 0.1
    largest = float(wanted.abs().max())
    fits = torch.allclose(found, wanted, rtol=tolerance, atol=tolerance * largest)
    return None if fits else "its logits differ in slots"


@torch.inference_mode()
def _logits_in_slots(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Logits of three tokens after three others, by slots and by the model's own attention."""
    prompt, total = 3, 6
    ids = torch.arange(1, total + 1, device=model.device)[None]
    ids %= model.config.get_text_config().vocab_size
    positions = torch.arange(total, device=model.device)[None]
    wanted = sharing_weights(model)(input_ids=ids, use_cache=False).logits[0, prompt:]
    forward = ModelForward(model)
    prefill, cache = Prefill(), BucketedCache(1, total)
    forward(ids[:, :prompt], positions[:, :prompt], prefill)
    text = model.config.get_text_config()
    limited = any(getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size"))
    kinds = set(getattr(text, "layer_types", None) or ())
    if limited and kinds != {"full_attention"} and prefill.windows == {None}:
        raise ModelError("its window is in its masks alone")  # wider than what is tried here
    cache.fill(np.array([0]), prefill.states)
    found = []
    for position in range(prompt, total):
        own = slice(position, position + 1)
        step = cache.begin_step()
        found.append(forward(ids[:, own], positions[:, own], step)[0, -1])
        cache.lengths += 1
    return torch.stack(found), wanted
