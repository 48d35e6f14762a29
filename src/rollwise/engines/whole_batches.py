"""The engine for models that continuous batching does not fit: one whole batch after another."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rollwise.engines.in_process import (
    InProcessEngine,
    responses_of,
    sample,
    uniforms_of,
)
from rollwise.sampling import Draw
from rollwise.step.outcomes import Completion, LostDraw, Prompts

COMPACT_BELOW = 0.8
"""Finished rows are dropped from the batch once fewer than this share of its rows still run."""


class WholeBatchEngine(InProcessEngine):
    """Draws a batch of responses until the last of them has ended, then the next.

    It runs the code of any causal language model of `transformers`. Draws of one prompt share its
    prefill.
    """

    @property
    def free_slots(self) -> int:
        """Rows of the next batch that are not taken yet."""
        return max(0, self.batch_size - len(self._waiting))

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws that have not begun; no token has been drawn for them."""
        for draw in draws:
            self._waiting.pop(draw, None)
        return 0

    def wait(self) -> Sequence[Completion | LostDraw]:
        """Complete the next batch; prompts of similar length go together, to save padding."""
        order = sorted(self._waiting, key=lambda draw: len(self._waiting[draw]), reverse=True)
        batch = order[: self.batch_size]
        if not batch:
            return []
        prompts = {draw.key: self._waiting[draw] for draw in batch}
        with _in_evaluation_mode(self.model):
            completions = self._generate(batch, prompts)
        self.cancel(batch)
        return completions

    @torch.no_grad()
    def _generate(self, draws: list[Draw], prompts: Prompts) -> list[Completion]:
        device = self.model.device
        rows = {key: row for row, key in enumerate(prompts)}
        row_of_draw = torch.tensor([rows[draw.key] for draw in draws], device=device)
        uniforms = torch.from_numpy(uniforms_of(draws, self.max_new_tokens)).to(device)
        tokens = torch.zeros((len(draws), self.max_new_tokens), dtype=torch.long, device=device)
        logprobs = torch.zeros(tokens.shape, device=device)
        lengths = torch.zeros(len(draws), dtype=torch.long, device=device)
        ended = torch.zeros(len(draws), dtype=torch.bool, device=device)
        room = [self.context - len(prompts[draw.key]) for draw in draws]
        limits = torch.tensor(room, device=device).clamp(max=self.max_new_tokens)

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
            ended[running] |= torch.isin(drawn, self._end_tokens) | (step + 1 >= limits[running])
            alive = ~ended[running]
            count = int(alive.sum())
            if count == 0:
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
                use_cache=True,
            ).logits[:, -1]
            positions = positions + 1
        return self._completions(responses_of(draws, tokens, logprobs, lengths.tolist()))

    def _prefill(self, prompts: Prompts) -> tuple[Tensor, Tensor, DynamicCache]:
        """Run each prompt once: its next-token logits, attention mask and cache, a row each."""
        mask = torch.zeros(len(prompts), max(map(len, prompts.values())), dtype=torch.long)
        ids = torch.zeros_like(mask)
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
            use_cache=True,  # trainers switch it off in the model's configuration
            logits_to_keep=1,
        )
        return output.logits[:, -1], mask, output.past_key_values


@contextmanager
def _in_evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Switch off dropout, and gradient checkpointing, which would disable the KV cache."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
