"""The learner: from responses and their advantages to new weights."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from rollwise.config import MICRO_BATCH_TOKENS, LearnerSettings
from rollwise.engines.local import lane_count
from rollwise.training.backend import Example
from rollwise.training.loss import importance_weights, policy_loss
from rollwise.training.model import merged_weights

CPU_MICRO_BATCH_TOKENS = 1_024
"""The most tokens that are run at a time on a CPU, by default: its caches would not hold more."""


class Learner:
    """Updates a model by the clipped policy gradient, averaged over the tokens of a mini-batch.

    On a CPU micro-batches are run side by side, in lanes, a thread each; their gradients are added
    up in order, so that lanes change nothing.

    Args:
        model: A causal language model; its parameters that require a gradient are trained, in
            the precision they have. On a GPU the arithmetic is in bfloat16.
        settings: How.
        temperature: At which responses are drawn; log-probabilities are taken at it.
        merged: Hand weights on as the files of the whole model have them, adapters merged in;
            otherwise as the model itself does.
        lanes: Threads; by default as many as there are cores for the threads of an operation.

    Attributes:
        updates: Updates made so far.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: LearnerSettings,
        temperature: float = 1.0,
        merged: bool = False,
        lanes: int | None = None,
    ) -> None:
        self.model, self.settings, self.temperature = model, settings, temperature
        self.merged = merged
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.updates = 0
        count = lanes or lane_count(model.device)
        self._threads = ThreadPoolExecutor(count, "rollwise-learner") if count > 1 else None
        on_cpu = model.device.type == "cpu"
        default = CPU_MICRO_BATCH_TOKENS if on_cpu else MICRO_BATCH_TOKENS
        self._micro_batch_tokens = settings.micro_batch_tokens or default

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, `mini_batches` of them, and say how they went.

        With one mini-batch the weights that are trained are those that drew the responses, so the
        old log-probabilities are the current ones; with several they are computed first. How far
        the engine's own, in its own precision, are from them (`sampler_gap`, the mean absolute
        difference) is corrected by importance weights: their mean is `importance_weight`, the
        share of them at the cap `importance_truncated`.

        A mini-batch that teaches nothing (no response, or none with an advantage and no entropy
        bonus) makes no update, and neither does a gradient that is not finite.
        """
        parts = np.array_split(np.arange(len(examples)), self.settings.mini_batches)
        old = self._old_logprobs(examples) if len(parts) > 1 else [None] * len(examples)
        totals = _Totals()
        for part in parts:
            if len(part):
                self._update([examples[i] for i in part], [old[i] for i in part], totals)
        return totals.metrics()

    def weights(self) -> dict[str, Tensor]:
        """Return the model's weights by name, for an engine to take over."""
        weights: dict[str, Tensor] = self.model.state_dict()
        return merged_weights(self.model) if self.merged else weights

    def save(self, folder: Path) -> None:
        """Write the model and the optimizer's state into a checkpoint's folder."""
        self.model.save_pretrained(folder / "model")
        safetensors.torch.save_file(self._optimizer_state(), folder / "optimizer.safetensors")

    def load(self, folder: Path) -> None:
        """Restore the optimizer's state; the model was loaded from `folder / "model"` before.

        Raises:
            OSError, ValueError, KeyError, SafetensorError: It is missing, broken, or of another
                model.
        """
        self._load_optimizer_state(safetensors.torch.load_file(folder / "optimizer.safetensors"))

    def _optimizer_state(self) -> dict[str, Tensor]:
        """Name AdamW's tensors by the place of their parameter; torch's random state goes along."""
        state = self.optimizer.state_dict()["state"]
        tensors = {
            f"{place}.{name}": value.contiguous()
            for place, values in state.items()
            for name, value in values.items()
        }
        return tensors | {"random_state": torch.get_rng_state()}

    def _load_optimizer_state(self, tensors: dict[str, Tensor]) -> None:
        torch.set_rng_state(tensors.pop("random_state"))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            place, part = name.split(".")
            state.setdefault(int(place), {})[part] = value
        shapes = {place: parameter.shape for place, parameter in enumerate(self.parameters)}
        if any(parts["exp_avg"].shape != shapes.get(place) for place, parts in state.items()):
            raise ValueError("the optimizer's state is of another model")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _update(
        self, examples: Sequence[Example], old: Sequence[Tensor | None], totals: "_Totals"
    ) -> None:
        tokens = sum(len(example.response) for example in examples)
        totals.tokens += tokens
        batches = list(self._micro_batches(examples))
        if not batches:
            return

        def loss_of(batch: list[int]) -> tuple[Tensor, _Totals]:
            loss, own = self._loss([examples[i] for i in batch], [old[i] for i in batch])
            return loss / tokens, own

        with _recomputing(self.model):
            for own in self._gather_gradients(loss_of, batches):
                totals.add(own)
        totals.grad_norms.append(self._step())

    def _gather_gradients(
        self, loss_of: Callable[[list[int]], tuple[Tensor, "_Totals"]], batches: list[list[int]]
    ) -> Iterator["_Totals"]:
        """Add up the gradients of micro-batches, in their order, whichever is done first."""
        if self._threads is None:
            for batch in batches:
                loss, totals = loss_of(batch)
                loss.backward()
                yield totals
            return

        def gradient_of(batch: list[int]) -> tuple[Sequence[Tensor | None], _Totals]:
            loss, totals = loss_of(batch)
            return torch.autograd.grad(loss, self.parameters, allow_unused=True), totals

        for gradient, totals in self._threads.map(gradient_of, batches):
            for parameter, part in zip(self.parameters, gradient, strict=True):
                if part is not None:
                    parameter.grad = part if parameter.grad is None else parameter.grad.add_(part)
            yield totals

    def _loss(
        self, examples: Sequence[Example], old: Sequence[Tensor | None]
    ) -> tuple[Tensor, "_Totals"]:
        """Compute the loss of a micro-batch, summed over its tokens."""
        settings = self.settings
        logprobs, entropy = self._forward(examples)
        before = logprobs.detach() if old[0] is None else _join(old)
        sampler = _engine_logprobs(examples, logprobs)
        weights = importance_weights(before, sampler, settings.importance_cap)
        loss, clipped = policy_loss(
            logprobs,
            before,
            _per_token(examples, logprobs),
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            dual_clip=settings.dual_clip,
        )
        loss = weights * loss
        totals = _Totals(
            loss=loss.sum().item(),
            clipped=clipped.sum().item(),
            gap=(before - sampler).abs().sum().item(),
            weight=weights.sum().item(),
            truncated=int((weights == settings.importance_cap).sum()),
            tokens_run=len(loss),
        )
        return (loss - settings.entropy_coefficient * entropy).sum(), totals

    def _step(self) -> float:
        """Change the weights by the gradient that has gathered; returns its norm."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        if torch.isfinite(norm):
            self.updates += 1
            warmup = min(1.0, self.updates / max(1, self.settings.warmup_updates))
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * warmup
            self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    def _old_logprobs(self, examples: Sequence[Example]) -> list[Tensor | None]:
        old: list[Tensor | None] = [None] * len(examples)
        batches = list(self._micro_batches(examples))

        @torch.no_grad()
        def rows_of(batch: list[int]) -> Sequence[Tensor]:
            members = [examples[i] for i in batch]
            lengths = [len(member.response) for member in members]
            return torch.split(self._forward(members)[0], lengths)

        apply = map if self._threads is None else self._threads.map
        for batch, rows in zip(batches, apply(rows_of, batches), strict=True):
            for i, row in zip(batch, rows, strict=True):
                old[i] = row
        return old

    def _micro_batches(self, examples: Sequence[Example]) -> Iterator[list[int]]:
        """Split into batches within the token budget, padding counted, long rows together.

        Responses with advantage 0 are left out where they add nothing to the gradient; they still
        count as tokens of the mini-batch.
        """
        rows = [
            i
            for i, example in enumerate(examples)
            if example.advantage != 0 or self.settings.entropy_coefficient != 0
        ]
        rows.sort(key=lambda i: len(examples[i]), reverse=True)
        batch: list[int] = []
        prompt = response = 0
        for i in rows:
            prompt = max(prompt, len(examples[i].prompt))
            response = max(response, len(examples[i].response))
            if batch and (len(batch) + 1) * (prompt + response) > self._micro_batch_tokens:
                yield batch
                batch = []
                prompt, response = len(examples[i].prompt), len(examples[i].response)
            batch.append(i)
        if batch:
            yield batch

    def _forward(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Compute log π and the entropy of every response token, one response after another.

        Prompts are padded on the left and responses on the right, so that all responses begin in
        one column and the logits before it need not be kept. The entropy is 0 where it is not
        asked for.
        """
        device = self.model.device
        width = max(len(example.prompt) for example in examples)
        length = max(len(example.response) for example in examples)
        ids = torch.zeros(len(examples), width + length, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, example in enumerate(examples):
            begin, end = width - len(example.prompt), width + len(example.response)
            ids[row, begin:end] = torch.tensor([*example.prompt, *example.response])
            mask[row, begin:end] = 1
        ids, mask = ids.to(device), mask.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
                logits_to_keep=length + 1,
                use_cache=False,
            )
        drawn = mask[:, width:].bool()
        logits = output.logits[:, :-1][drawn].float() / self.temperature
        logprobs = -cross_entropy(logits, ids[:, width:][drawn], reduction="none")
        if self.settings.entropy_coefficient == 0:
            return logprobs, torch.zeros_like(logprobs)
        return logprobs, torch.distributions.Categorical(logits=logits).entropy()


@contextmanager
def _recomputing(model: PreTrainedModel) -> Iterator[None]:
    """Let activations be recomputed in the backward pass, where that is enabled.

    `transformers` does so only in modules in training mode. Those within them, which hold the
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


def _join(rows: Iterable[Tensor | None]) -> Tensor:
    return torch.cat([row for row in rows if row is not None])


def _per_token(examples: Sequence[Example], like: Tensor) -> Tensor:
    lengths = [len(example.response) for example in examples]
    return like.new_tensor(np.repeat([example.advantage for example in examples], lengths))


def _engine_logprobs(examples: Sequence[Example], like: Tensor) -> Tensor:
    return like.new_tensor(np.concatenate([example.logprobs for example in examples]))


@dataclass
class _Totals:
    """Sums over the tokens and updates of a step."""

    loss: float = 0.0
    clipped: float = 0.0
    gap: float = 0.0
    weight: float = 0.0
    truncated: int = 0
    tokens_run: int = 0
    tokens: int = 0
    grad_norms: list[float] = field(default_factory=list)

    def add(self, other: "_Totals") -> None:
        self.loss += other.loss
        self.clipped += other.clipped
        self.gap += other.gap
        self.weight += other.weight
        self.truncated += other.truncated
        self.tokens_run += other.tokens_run

    def metrics(self) -> dict[str, float]:
        finite = [norm for norm in self.grad_norms if np.isfinite(norm)]
        return {
            "loss": self.loss / max(1, self.tokens),
            "clip_fraction": self.clipped / max(1, self.tokens),
            "sampler_gap": self.gap / max(1, self.tokens_run),
            "importance_weight": self.weight / self.tokens_run if self.tokens_run else 1.0,
            "importance_truncated": self.truncated / max(1, self.tokens_run),
            "grad_norm": float(np.mean(finite)) if finite else 0.0,
            "skipped_updates": len(self.grad_norms) - len(finite),
        }
