"""The built-in engine: batched generation with any causal language model of `transformers`."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.engine import Completion, LostDraw, Prompts
from rollwise.sampling import Draw

COMPACT_BELOW = 0.8
"""Finished rows are dropped from the batch once fewer than this share of its rows still run."""


class TransformersEngine:
    """Draws responses in batches, prompt by prompt, on the device that the model is on.

    Each draw has random numbers of its own, one a token, so what is drawn does not depend on the
    batch it is drawn in (up to the rounding of the model's arithmetic). Draws of one prompt share
    its prefill.

    Args:
        model: A causal language model. Shared with the learner if it is the same object; else
            `load_weights` keeps it up to date.
        tokenizer: Its tokenizer.
        max_new_tokens: Responses are cut here.
        temperature: Of sampling; above 0.
        batch_size: The most responses drawn at a time.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.max_new_tokens, self.temperature = max_new_tokens, temperature
        self.batch_size = batch_size
        self._end_tokens = torch.tensor(sorted(end_tokens(model, tokenizer)), device=model.device)
        self._waiting: dict[Draw, Sequence[int]] = {}

    @property
    def free_slots(self) -> int:
        """Rows of the next batch that are not taken yet."""
        return max(0, self.batch_size - len(self._waiting))

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws."""
        self._waiting.update((draw, prompts[draw.key]) for draw in draws)

    def cancel(self, draws: Iterable[Draw]) -> None:
        """Forget draws that have not begun."""
        for draw in draws:
            self._waiting.pop(draw, None)

    def wait(self) -> Sequence[Completion | LostDraw]:
        """Complete the next batch; prompts of similar length go together, to save padding."""
        order = sorted(self._waiting, key=lambda draw: len(self._waiting[draw]), reverse=True)
        batch = order[: self.batch_size]
        if not batch:
            return []
        prompts = {draw.key: self._waiting[draw] for draw in batch}
        completions = self._generate(batch, prompts)
        self.cancel(batch)
        return completions

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; weights that it shares with the learner stay put."""
        own = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in weights.items():
                if own[name].data_ptr() != tensor.data_ptr():
                    own[name].copy_(tensor)

    @torch.no_grad()
    def _generate(self, draws: list[Draw], prompts: Prompts) -> list[Completion]:
        device = self.model.device
        rows = {key: row for row, key in enumerate(prompts)}
        row_of_draw = torch.tensor([rows[draw.key] for draw in draws], device=device)
        uniforms = torch.from_numpy(_uniforms(draws, self.max_new_tokens)).to(device)
        tokens = torch.zeros((len(draws), self.max_new_tokens), dtype=torch.long, device=device)
        logprobs = torch.zeros(tokens.shape, device=device)
        lengths = torch.zeros(len(draws), dtype=torch.long, device=device)
        ended = torch.zeros(len(draws), dtype=torch.bool, device=device)

        logits, mask, cache = self._prefill(prompts)
        logits, mask = logits[row_of_draw], mask[row_of_draw]
        cache.batch_select_indices(row_of_draw)
        positions = mask.sum(dim=1)
        running = torch.arange(len(draws), device=device)
        for step in range(self.max_new_tokens):
            drawn, drawn_logprobs = sample(logits / self.temperature, uniforms[running, step])
            tokens[running, step] = drawn
            logprobs[running, step] = drawn_logprobs
            lengths[running] += ~ended[running]
            ended[running] |= torch.isin(drawn, self._end_tokens)
            alive = ~ended[running]
            count = int(alive.sum())
            if count == 0 or step + 1 == self.max_new_tokens:
                break
            if count < COMPACT_BELOW * len(running):
                kept = alive.nonzero().squeeze(1)
                running, drawn, positions = running[kept], drawn[kept], positions[kept]
                mask = mask[kept]
                cache.batch_select_indices(kept)
            mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)
            logits = self.model(
                input_ids=drawn[:, None],
                attention_mask=mask,
                position_ids=positions[:, None],
                past_key_values=cache,
            ).logits[:, -1]
            positions = positions + 1
        return self._completions(draws, tokens, logprobs, lengths, ended)

    def _prefill(self, prompts: Prompts) -> tuple[Tensor, Tensor, DynamicCache]:
        """Run each prompt once: its next-token logits, attention mask and cache, a row each."""
        mask = torch.zeros(len(prompts), max(map(len, prompts.values())), dtype=torch.long)
        ids = torch.full_like(mask, self._end_tokens[0].item())
        for row, prompt in enumerate(prompts.values()):
            ids[row, -len(prompt) :] = torch.tensor(prompt)
            mask[row, -len(prompt) :] = 1
        ids, mask = ids.to(self.model.device), mask.to(self.model.device)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=DynamicCache(config=self.model.config),
            logits_to_keep=1,
        )
        return output.logits[:, -1], mask, output.past_key_values

    def _completions(
        self, draws: list[Draw], tokens: Tensor, logprobs: Tensor, lengths: Tensor, ended: Tensor
    ) -> list[Completion]:
        responses = [
            row[:length] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)
        ]
        texts = self.tokenizer.batch_decode(responses, skip_special_tokens=True)
        rows = zip(draws, responses, logprobs.cpu().numpy(), texts, ended.tolist(), strict=True)
        return [
            Completion(draw, response, row[: len(response)].copy(), text, truncated=not complete)
            for draw, response, row, text, complete in rows
        ]


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Collect the tokens that end a response: the model's own and the tokenizer's.

    Raises:
        ValueError: There are none.
    """
    configured = model.generation_config.eos_token_id if model.generation_config else None
    own = configured if isinstance(configured, list) else [configured]
    found = {token for token in [*own, tokenizer.eos_token_id] if token is not None}
    if not found:
        raise ValueError(
            "neither the model's generation_config nor its tokenizer has an end-of-sequence token"
        )
    return found


def sample(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a token a row by inverting the cumulative distribution at `uniforms`.

    Args:
        logits: Shape (B, V).
        uniforms: Shape (B,), in [0, 1).

    Returns:
        Tokens and their log-probabilities, shape (B,) each. A token of probability 0 is never
        drawn.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    cumulative = logprobs.exp().cumsum(dim=-1)
    # Even the largest number below 1 leaves the target below the total, whatever it rounds to.
    target = uniforms * cumulative[:, -1]
    tokens = torch.searchsorted(cumulative, target[:, None], right=True)
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def _uniforms(draws: list[Draw], count: int) -> NDArray[np.float32]:
    """Random numbers of each draw's own, shape (draws, count), in [0, 1)."""
    rows = [np.random.Generator(np.random.Philox(key=draw.seed)) for draw in draws]
    return np.stack([row.random(count, dtype=np.float32) for row in rows])
