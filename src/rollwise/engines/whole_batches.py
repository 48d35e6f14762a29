"""Drawing whole batches with `generate`, from models that continuous batching does not fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from rollwise.engines.attention import sharing_weights
from rollwise.engines.probe import (
    close,
    describe_fault,
    in_float32,
    plain_logprobs,
    refusal,
    trial,
    trial_tokens,
)
from rollwise.engines.tokens import Drawn, TokenSampler, drawn_of
from rollwise.sampling import Draw


class WholeBatch:
    """Responses that are drawn together until the last of them has ended.

    `transformers` generates them, so any causal language model will do; each token is sampled by
    the random numbers of its draw. Where the model's code does not leave out padding (BART's
    decoder), prompts of one length are drawn together. The arguments are those of
    `ContinuousBatch`.

    Raises:
        ModelError: One sequence at a time has other probabilities in any case.
    """

    def __init__(self, sampling: TokenSampler, slots: int) -> None:
        self._model, self._sampling = sharing_weights(sampling.model), sampling
        self._pads = True
        self._unfinished = 0  # tokens of the batch that is being drawn
        self._check()
        self.open(slots)

    def open(self, slots: int) -> None:
        """Forget what is drawn; a batch may have any size."""
        self.drawing: dict[Draw, Sequence[int]] = {}

    def weights_changed(self) -> None:
        """Do nothing: no keys and values are kept."""

    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        self.drawing.update(draws)

    def restart(self, slots: int) -> tuple[list[Drawn], dict[Draw, Sequence[int]], int]:
        """Start over with fewer slots.

        Returns no responses, all draws with their prompts, and how many tokens are lost.
        """
        drawing, self.drawing = self.drawing, {}
        lost, self._unfinished = self._unfinished, 0
        return [], drawing, lost

    def cancel(self, draw: Draw) -> int:
        """Forget a draw; none of its tokens has been drawn."""
        self.drawing.pop(draw, None)
        return 0

    @torch.no_grad()
    def draw(self) -> list[Drawn]:
        """Draw all responses to their ends, or those to prompts as long as the first."""
        length = len(next(iter(self.drawing.values())))
        draws = [d for d, prompt in self.drawing.items() if self._pads or len(prompt) == length]
        prompts = [self.drawing[draw] for draw in draws]
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
            self._unfinished += len(drawn)
            return torch.full_like(logits, -torch.inf).scatter(1, drawn[:, None], 0.0)

        # This replaces the model's own, which may ask for other distributions.
        self._model.generation_config = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            eos_token_id=[end for end in end_tokens.tolist() if end >= 0] or None,
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
        self._unfinished = 0
        for draw in draws:
            del self.drawing[draw]
        return drawn_of(draws, tokens, logprobs, lengths)

    def _check(self) -> None:
        """Draw a few tokens, with padding or without, as plain passes of one sequence have them.

        Raises:
            ModelError: See the class.
        """
        sampling, model = self._sampling, self._model
        endless = torch.full_like(sampling.end_tokens, -1)
        self._sampling = replace(sampling, max_new_tokens=3, temperature=1.0, end_tokens=endless)
        with trial(model, "drawn from"), torch.no_grad(), in_float32():
            for self._pads in (True, False):
                if self._agrees():
                    self._sampling = sampling
                    return
            raise refusal(model, "drawn from", describe_fault(model))

    def _agrees(self) -> bool:
        """Return whether drawn tokens have the probabilities that plain passes give them."""
        tokens = trial_tokens(self._model, 5)
        self.drawing = {Draw(str(i), 0, i): tokens[: 2 + i % 3] for i in range(4)}
        prompts, found = dict(self.drawing), list[Drawn]()
        while self.drawing:
            found += self.draw()
        wanted = [plain_logprobs(self._model, prompts[r.draw], r.tokens) for r in found]
        logprobs = torch.from_numpy(np.concatenate([r.logprobs for r in found]))
        return close(logprobs, torch.cat(wanted).float().cpu())
