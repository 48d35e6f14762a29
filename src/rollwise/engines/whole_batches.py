"""Drawing whole batches with `generate`, from models that continuous batching does not fit."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from rollwise.engines.attention import sharing_weights
from rollwise.engines.tokens import Response, Sampling, responses_of
from rollwise.sampling import Draw


class WholeBatch:
    """Responses that are drawn together until the last of them has ended.

    `transformers` generates them, so any causal language model will do; each token is sampled by
    the random numbers of its draw. The arguments are those of `ContinuousBatch`.
    """

    def __init__(self, sampling: Sampling, slots: int) -> None:
        self._model, self._sampling = sharing_weights(sampling.model), sampling
        self.open(slots)

    def open(self, slots: int) -> None:
        self._slots = slots
        self.drawing: dict[Draw, Sequence[int]] = {}

    @property
    def free_slots(self) -> int:
        return self._slots - len(self.drawing)

    def weights_changed(self) -> None:
        """Do nothing: no keys and values are kept."""

    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        self.drawing.update(draws)

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws; none of their tokens has been drawn."""
        for draw in draws:
            self.drawing.pop(draw, None)
        return 0

    @torch.no_grad()
    def draw(self) -> list[Response]:
        """Draw all responses to their ends."""
        draws, prompts = list(self.drawing), list(self.drawing.values())
        sampling, width = self._sampling, max(map(len, prompts))
        device, end_tokens = sampling.end_tokens.device, sampling.end_tokens
        ids = torch.tensor([[0] * (width - len(p)) + [*p] for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        uniforms = sampling.uniforms(draws)
        logprobs = torch.zeros(uniforms.shape, device=device)

        def choose(ids: Tensor, logits: Tensor) -> Tensor:
            """Leave one token to choose from in each row: the one that its random number draws."""
            step = ids.shape[1] - width
            drawn, logprobs[:, step] = sampling.sample(logits, uniforms[:, step])
            return torch.full_like(logits, -torch.inf).scatter(1, drawn[:, None], 0.0)

        # This replaces the model's own, which may ask for other distributions.
        self._model.generation_config = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            eos_token_id=end_tokens.tolist(),
            pad_token_id=0,
            use_cache=True,
        )
        found = self._model.generate(
            input_ids=ids, attention_mask=mask, logits_processor=LogitsProcessorList([choose])
        )
        tokens = found[:, width:]
        limits = [min(tokens.shape[1], sampling.longest - len(prompt)) for prompt in prompts]
        ended = torch.isin(tokens, end_tokens)
        ends = torch.where(ended.any(dim=1), ended.int().argmax(dim=1) + 1, tokens.shape[1])
        lengths = [min(end, limit) for end, limit in zip(ends.tolist(), limits, strict=True)]
        self.drawing = {}
        return responses_of(draws, tokens, logprobs, lengths)
