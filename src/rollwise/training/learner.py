"""The learner: updates a model's weights by responses and their advantages."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rollwise.config import LearnerSettings
from rollwise.config.learning import MICRO_BATCH_TOKENS
from rollwise.errors import EngineError, PolicyError
from rollwise.models.loading import merged_weights
from rollwise.step.episodes import Example
from rollwise.training.cores import core_share
from rollwise.training.forward import Forward
from rollwise.training.loss import diverged_responses, importance_weights, policy_loss
from rollwise.training.micro_batches import micro_batches
from rollwise.training.optimizers import load_optimizer_state, optimizer_state
from rollwise.training.response_cap import ResponseCap

Totals = dict[str, float]
"""Sums over the tokens of a step, by name."""

CPU_MICRO_BATCH_TOKENS = 1_024
"""Default for a CPU: what its caches hold."""


class Learner:
    """Updates a model by the clipped policy gradient, averaged over a mini-batch.

    On a CPU several threads each run a micro-batch. The gradients are added up in a fixed order, so
    that the number of threads does not change the result.

    Args:
        model: A causal language model; its parameters that require a gradient are trained, in
            the precision they have. On a GPU the arithmetic is in bfloat16.
        settings: Learning rate, mini-batches, clipping and so on.
        temperature: The temperature at which responses are drawn; log-probabilities refer to it.
        merged: Whether `weights` merges adapters into the weights of the whole model.
        threads: Micro-batches that are run at once; by default one for each core that torch's own
            threads leave free.

    Attributes:
        updates: Updates made so far.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: LearnerSettings,
        temperature: float = 1.0,
        merged: bool = False,
        threads: int | None = None,
    ) -> None:
        self.model, self.settings = model, settings
        self.temperature, self.merged = temperature, merged
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.updates = 0
        self._learnt_from: Example | None = None
        self._run = Forward(model, temperature, settings.packed)
        cap = settings.response_cap
        self._cap = ResponseCap(self._run.model, cap) if cap else None
        count = threads or core_share(model.device)
        self._threads = ThreadPoolExecutor(count, "rollwise-learner") if count > 1 else None
        on_cpu = model.device.type == "cpu"
        default = CPU_MICRO_BATCH_TOKENS if on_cpu else MICRO_BATCH_TOKENS
        self._micro_batch_tokens = settings.micro_batch_tokens or default

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, `mini_batches` of them, and return their metrics.

        With one mini-batch the weights being trained are those that drew the responses, so the old
        log-probabilities are the current ones; with several they are computed first, or the
        engine's are taken (`old_logprobs`). Importance weights correct for an engine that computes
        otherwise than the learner.

        A mini-batch without a gradient (no response, or no advantage and no entropy bonus) makes no
        update, and neither does a gradient that is not finite.

        Returns:
            Averages over tokens: `loss`, `clip_fraction`, `sampler_gap` (the absolute difference
            between the learner's log-probability and the engine's), `importance_weight` and
            `importance_truncated` (the share of weights at the cap). Over updates: `grad_norm`,
            and the number of `skipped_updates`; with `response_cap`, also that of
            `capped_gradients`, and with `max_divergence` that of `diverged_responses`.
        """
        known = self.model.get_input_embeddings().num_embeddings
        if (highest := max((max(e.response, default=0) for e in examples), default=0)) >= known:
            raise EngineError(f"a response has token {highest}; the model has {known}, from 0")
        capped_before = self._cap.capped if self._cap else 0
        count = min(self.settings.mini_batches, max(1, len(examples)))
        parts = np.array_split(np.arange(len(examples)), count)
        old = self._old_logprobs(examples) if len(parts) > 1 else [None] * len(examples)
        totals: Totals = defaultdict(float)
        grad_norms: list[float] = []
        updates_before = self.updates
        for part in parts:
            if len(part):
                given = [examples[i] for i in part], [old[i] for i in part]
                grad_norms += self._update(*given, totals)
        if self.updates > updates_before:
            self._learnt_from = examples[0]
        found = _metrics(totals, grad_norms)
        if self._cap:
            found["capped_gradients"] = self._cap.capped - capped_before
        if self.settings.max_divergence:
            found["diverged_responses"] = int(totals["left_out"])
        return found

    def weights(self) -> Mapping[str, Tensor]:
        """Return the model's weights by name, for an engine to load before the next update.

        Adapters are merged into a copy.
        """
        return merged_weights(self.model) if self.merged else self.model.state_dict()

    def save(self, folder: Path) -> None:
        """Write the model and the optimizer's state; a PolicyError if they are not finite."""
        self._refuse_if_not_finite()
        self.model.save_pretrained(folder / "model")
        tensors = optimizer_state(self.optimizer, self.parameters)
        if self._cap:
            tensors["response_bounds"] = torch.from_numpy(self._cap.bounds)
        safetensors.torch.save_file(tensors, folder / "optimizer.safetensors")

    def load(self, folder: Path) -> None:
        """Restore the optimizer's state; the model was loaded from `folder / "model"` before."""
        tensors = safetensors.torch.load_file(folder / "optimizer.safetensors")
        bounds = tensors.pop("response_bounds", None)
        if self._cap and bounds is not None:
            self._cap.bounds = bounds.numpy()
        load_optimizer_state(self.optimizer, self.parameters, tensors)

    def _update(
        self, examples: Sequence[Example], old: Sequence[Tensor | None], totals: Totals
    ) -> list[float]:
        """Update the weights by a mini-batch; returns the norm of its gradient, if it has one."""
        tokens = sum(example.drawn for example in examples)
        totals["tokens"] += tokens
        batches = self._micro_batches(examples)
        if not batches:
            return []

        mean_length = tokens / len(examples)

        def loss_of(batch: list[int]) -> tuple[Tensor, Totals]:
            of_batch = [examples[i] for i in batch], [old[i] for i in batch]
            loss, own = self._loss(*of_batch, mean_length)
            return loss / tokens, own

        bounding = self._cap.bounding(tokens) if self._cap else nullcontext()
        with _recomputing(self._run.model), bounding:
            for own in self._gather_gradients(loss_of, batches):
                for name, value in own.items():
                    totals[name] += value
        return [self._step()]

    def _gather_gradients(
        self, loss_of: Callable[[list[int]], tuple[Tensor, Totals]], batches: list[list[int]]
    ) -> Iterator[Totals]:
        """Add up the gradients of micro-batches in their order, whichever finishes first."""
        if self._threads is None:
            for batch in batches:
                loss, totals = loss_of(batch)
                loss.backward()
                yield totals
            return

        def gradient_of(batch: list[int]) -> tuple[Sequence[Tensor | None], Totals]:
            loss, totals = loss_of(batch)
            return torch.autograd.grad(loss, self.parameters, allow_unused=True), totals

        for gradient, totals in self._threads.map(gradient_of, batches):
            for parameter, part in zip(self.parameters, gradient, strict=True):
                if part is not None:
                    parameter.grad = part if parameter.grad is None else parameter.grad.add_(part)
            yield totals

    def _loss(
        self,
        examples: Sequence[Example],
        old: Sequence[Tensor | None],
        mean_length: float,
    ) -> tuple[Tensor, Totals]:
        """Compute the loss of a micro-batch, summed over its tokens.

        `old` holds log-probabilities, None where they are the current ones; `mean_length` is the
        mean number of tokens of the update's responses.
        """
        settings, lengths = self.settings, [example.drawn for example in examples]
        logprobs, entropy = self._forward(examples)
        known = [row for row in old if row is not None]
        before = torch.cat(known) if known else logprobs.detach()
        sampler = logprobs.new_tensor(np.concatenate([e.drawn_logprobs for e in examples]))
        advantages = logprobs.new_tensor(np.repeat([e.advantage for e in examples], lengths))
        bounds = {n: getattr(settings, n) for n in ("clip_low", "clip_high", "dual_clip")}
        loss, clipped = policy_loss(logprobs, before, advantages, **bounds)
        weights = importance_weights(before, sampler, settings.importance_cap)
        loss, left_out = weights * loss, 0
        if settings.max_divergence:
            diverged = diverged_responses(sampler, logprobs, lengths, settings.max_divergence)
            left_out = int(diverged.sum())
            rows = torch.tensor(lengths, device=loss.device)
            loss = loss.masked_fill(diverged.repeat_interleave(rows), 0.0)
        if settings.average == "responses":
            weight_of_each = [mean_length / max(1, length) for length in lengths]
            per_token = loss.new_tensor(np.repeat(weight_of_each, lengths))
            loss, entropy = per_token * loss, per_token * entropy
        totals: Totals = {
            "loss": loss.sum().item(),
            "clipped": clipped.sum().item(),
            "gap": (before - sampler).abs().sum().item(),
            "weight": weights.sum().item(),
            "truncated": int((weights == settings.importance_cap).sum()),
            "tokens_run": len(loss),
            "left_out": left_out,
        }
        return (loss - settings.entropy_coefficient * entropy).sum(), totals

    def _step(self) -> float:
        """Update the weights by the accumulated gradient; returns its norm."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        if torch.isfinite(norm):
            self.updates += 1
            warmup = min(1.0, self.updates / max(1, self.settings.warmup_updates))
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * warmup
            self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    @torch.no_grad()
    def _refuse_if_not_finite(self) -> None:
        """Run a response of the last update, because a policy that is broken is so for all."""
        if self._learnt_from is None:
            return
        logprobs, _ = self._forward([self._learnt_from])
        if not torch.isfinite(logprobs).all():
            raise PolicyError("the update left a policy whose probabilities are not finite")

    def _old_logprobs(self, examples: Sequence[Example]) -> list[Tensor | None]:
        if self.settings.old_logprobs == "engine":
            device = self.model.device
            return [
                torch.as_tensor(example.drawn_logprobs, dtype=torch.float32, device=device)
                for example in examples
            ]
        old: list[Tensor | None] = [None] * len(examples)
        batches = self._micro_batches(examples)

        @torch.no_grad()
        def rows_of(batch: list[int]) -> Sequence[Tensor]:
            members = [examples[i] for i in batch]
            lengths = [member.drawn for member in members]
            return torch.split(self._forward(members)[0], lengths)

        apply = map if self._threads is None else self._threads.map
        for batch, rows in zip(batches, apply(rows_of, batches), strict=True):
            for i, row in zip(batch, rows, strict=True):
                old[i] = row
        return old

    def _micro_batches(self, examples: Sequence[Example]) -> list[list[int]]:
        """Split into batches; responses that add nothing to the gradient are left out."""
        rows = [
            i
            for i, example in enumerate(examples)
            if example.drawn  # a response that was cut before its first turn ended has no tokens
            and (example.advantage != 0 or self.settings.entropy_coefficient != 0)
        ]
        return list(micro_batches(examples, rows, self._micro_batch_tokens, self._run.packed))

    def _forward(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Compute log π and, for an entropy bonus, the entropy of every token drawn, (D,)."""
        return self._run(examples, with_entropy=self.settings.entropy_coefficient != 0)


@contextmanager
def _recomputing(model: PreTrainedModel) -> Iterator[None]:
    """Recompute activations in the backward pass, where gradient checkpointing is enabled.

    `transformers` recomputes only in modules in training mode. Those inside them, which hold the
    dropout, stay in evaluation mode.
    """
    modules = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    try:
        for module in modules:
            module.training = True
        yield
    finally:
        for module in modules:
            module.training = False


def _metrics(totals: Mapping[str, float], grad_norms: Sequence[float]) -> dict[str, float]:
    """Average sums over tokens, and the norms that are finite over updates."""
    tokens, tokens_run = max(1, totals["tokens"]), max(1, totals["tokens_run"])
    finite = [norm for norm in grad_norms if np.isfinite(norm)]
    return {
        "loss": totals["loss"] / tokens,
        "clip_fraction": totals["clipped"] / tokens,
        "sampler_gap": totals["gap"] / tokens_run,
        "importance_weight": totals["weight"] / tokens_run if totals["tokens_run"] else 1.0,
        "importance_truncated": totals["truncated"] / tokens_run,
        "grad_norm": float(np.mean(finite)) if finite else 0.0,
        "skipped_updates": len(grad_norms) - len(finite),
    }
