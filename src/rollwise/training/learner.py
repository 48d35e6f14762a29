"""The learner: updates a model's weights from responses and their advantages."""

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, product
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rollwise.config import LearnerSettings
from rollwise.errors import EngineError, PolicyError
from rollwise.machine import usable_cores
from rollwise.step.response import Example
from rollwise.training.forward import Forward, recomputing
from rollwise.training.loss import (
    diverged_responses,
    importance_weights,
    kl_estimate,
    policy_loss,
)
from rollwise.training.micro_batches import micro_batches

Totals = dict[str, float]
"""Sums over the tokens of a step, by name."""

Old = Sequence[Tensor | None]
"""Log-probabilities of responses before an update; None where they are the current ones."""

PROBED = 8
"""Responses by which a step measures how far it moved the policy."""

ROUNDING = 1e-4
"""Relative difference that two ways to compute one probability may leave between them."""


class Learner:
    """Updates a model by the clipped policy gradient, averaged over a mini-batch.

    On a CPU several threads each run a micro-batch. The gradients are added up in a fixed order, so
    that the number of threads does not change the result.

    Args:
        model: A causal language model; its parameters that require a gradient are trained, in
            the precision they have. The arithmetic is in bfloat16 where a GPU computes in it.
        settings: Learning rate, mini-batches, clipping and so on.
        temperature: The temperature at which responses are drawn; log-probabilities refer to it.
        weights_of: Makes what `weights` returns from the model; by default its own weights.
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
        weights_of: Callable[[PreTrainedModel], Mapping[str, Tensor]] = torch.nn.Module.state_dict,
        threads: int | None = None,
    ) -> None:
        self.model, self.settings = model, settings
        self.temperature, self._weights_of = temperature, weights_of
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self.updates = 0
        self._learnt_from: Example | None = None
        self._run = Forward(model, temperature, settings.packed)
        count = threads or learner_threads(model.device.type)
        self._threads = ThreadPoolExecutor(count, "rollwise-learner") if count > 1 else None
        self._thread_count = count
        self._micro_batch_tokens = settings.tokens_at_a_time(model.device.type != "cpu")

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, `mini_batches` in each pass, and return their metrics.

        With one update the old log-probabilities are the current ones; with several they are
        computed first, or the engine's are taken (`old_logprobs`). Passes after the first end once
        the policy has moved by `target_kl` from the one that drew.

        A mini-batch without a gradient (no response, or no advantage and no entropy bonus) makes no
        update, and neither does a gradient that is not finite.

        Returns:
            Averages over tokens: `loss`, `clip_fraction`, `sampler_gap` (between the learner's
            log-probabilities before the updates and the engine's; with `old_logprobs` = "engine"
            over the first update's tokens), `importance_weight`, and `importance_truncated`, the
            share of weights that the cap lowered. Over a few responses: `policy_change`, how far
            the step moved the log-probability of a token, in nats. Over updates: `grad_norm`, and
            numbers of `skipped_updates` and `diverged_responses`. With several passes: `passes`
            made, and `kl` of the last mini-batch.
        """
        known = self.model.get_input_embeddings().num_embeddings
        if (
            highest := max((max(e.response.tokens, default=0) for e in examples), default=0)
        ) >= known:
            raise EngineError(f"a response has token id {highest}; the model's end at {known - 1}")
        count = min(self.settings.mini_batches, max(1, len(examples)))
        parts = np.array_split(np.arange(len(examples)), count)
        taught = [e for e in examples if e.advantage and e.response.drawn][:PROBED]
        before = self._probed(taught)
        passes = self.settings.passes
        several = passes * len(parts) > 1
        old = self._old_logprobs(examples) if several else [None] * len(examples)
        totals: Totals = defaultdict(float)
        grad_norms: list[float] = []
        updates_before, at_first = self.updates, totals
        kl, made = 0.0, 0
        for again, part in product(range(passes), parts):
            if again and kl > self.settings.target_kl:
                break
            made += 1
            if len(part):
                given = [examples[i] for i in part], [old[i] for i in part]
                unchanged = self.updates == updates_before
                kl_before, run_before = totals["kl"], totals["tokens_run"]
                grad_norms += self._update(*given, totals)
                kl = (totals["kl"] - kl_before) / max(1, totals["tokens_run"] - run_before)
                if unchanged and self.settings.old_logprobs == "engine":
                    at_first = totals.copy()
        if self.updates > updates_before:
            self._learnt_from = examples[0]
        found = _metrics(totals, grad_norms)
        if taught:
            found["policy_change"] = float((self._probed(taught) - before).abs().mean())
        found["sampler_gap"] = at_first["gap"] / max(1, at_first["tokens_run"])
        if passes > 1:
            found |= {"passes": made / len(parts), "kl": kl}
        if self.settings.max_divergence:
            found["diverged_responses"] = int(totals["left_out"])
        return found

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights by name that an engine is to load before the next update."""
        return self._weights_of(self.model)

    def save(self, folder: Path) -> None:
        """Write the model and the optimizer's state; a PolicyError if they are not finite."""
        self._refuse_if_not_finite()
        self.model.save_pretrained(folder / "model")
        state = self.optimizer.state_dict()["state"]
        tensors = {f"{i}.{name}": each for i, own in state.items() for name, each in own.items()}
        tensors["random_state"] = torch.get_rng_state()
        safetensors.torch.save_file(tensors, folder / "optimizer.safetensors")

    def load(self, folder: Path) -> None:
        """Restore the optimizer's and torch's random state; the model is loaded already."""
        tensors = safetensors.torch.load_file(folder / "optimizer.safetensors")
        random_state = tensors.pop("random_state")
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, part = name.split(".")
            state.setdefault(int(index), {})[part] = value
        shapes = {index: parameter.shape for index, parameter in enumerate(self.parameters)}
        if any(own["exp_avg"].shape != shapes.get(index) for index, own in state.items()):
            raise ValueError("the optimizer's state belongs to another model")
        torch.set_rng_state(random_state)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _update(self, examples: Sequence[Example], old: Old, totals: Totals) -> list[float]:
        """Update the weights by a mini-batch; returns the norm of its gradient, if it has one."""
        tokens = sum(example.response.drawn for example in examples)
        totals["tokens"] += tokens
        batches = self._micro_batches(examples)
        if not batches:
            return []
        left_out = totals["left_out"]

        def loss_of(batch: list[int]) -> tuple[Tensor, Totals]:
            of_batch = [examples[i] for i in batch], [old[i] for i in batch]
            loss, own = self._loss(*of_batch, mean_length=tokens / len(examples))
            return loss / tokens, own

        with recomputing(self._run.model):
            for own in self._gather_gradients(loss_of, batches):
                for name, value in own.items():
                    totals[name] += value
        if totals["left_out"] - left_out == sum(map(len, batches)):
            self.optimizer.zero_grad()
            return []
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

        waiting = deque[Future[tuple[Sequence[Tensor | None], Totals]]]()
        rest = iter(batches)
        for batch in islice(rest, self._thread_count + 1):  # each result is as large as the model
            waiting.append(self._threads.submit(gradient_of, batch))
        while waiting:
            gradient, totals = waiting.popleft().result()
            waiting += [self._threads.submit(gradient_of, batch) for batch in islice(rest, 1)]
            for parameter, part in zip(self.parameters, gradient, strict=True):
                if part is not None:
                    parameter.grad = part if parameter.grad is None else parameter.grad.add_(part)
            yield totals

    def _loss(
        self, examples: Sequence[Example], old: Old, mean_length: float
    ) -> tuple[Tensor, Totals]:
        """Compute the loss of a micro-batch, summed over its tokens.

        `mean_length` is the mean number of tokens of the update's responses.
        """
        settings, lengths = self.settings, [example.response.drawn for example in examples]
        logprobs, entropy = self._forward(examples)
        known = [row for row in old if row is not None]
        before = torch.cat(known) if known else logprobs.detach()
        sampler = logprobs.new_tensor(np.concatenate([e.response.drawn_logprobs for e in examples]))
        sampler = torch.where(sampler.isnan(), before, sampler)  # unknown to the engine
        advantages = logprobs.new_tensor(np.repeat([e.advantage for e in examples], lengths))
        bounds = {n: getattr(settings, n) for n in ("clip_low", "clip_high", "dual_clip")}
        loss, clipped = policy_loss(logprobs, before, advantages, **bounds)
        cap = settings.importance_cap
        weights = importance_weights(before, sampler, cap)
        reference = logprobs.detach() if settings.old_logprobs == "engine" else before
        loss, left_out = weights * loss, 0
        if settings.max_divergence:
            diverged = diverged_responses(sampler, logprobs, lengths, settings.max_divergence)
            left_out = int(diverged.sum())
            rows = torch.tensor(lengths, device=loss.device)
            of_tokens = diverged.repeat_interleave(rows)
            loss, entropy = (x.masked_fill(of_tokens, 0.0) for x in (loss, entropy))
        if settings.average == "responses":
            weight_of_each = [mean_length / max(1, length) for length in lengths]
            per_token = loss.new_tensor(np.repeat(weight_of_each, lengths))
            loss, entropy = per_token * loss, per_token * entropy
        totals: Totals = {
            "loss": loss.sum().item(),
            "clipped": clipped.sum().item(),
            "gap": (reference - sampler).abs().sum().item(),
            "kl": kl_estimate(logprobs.detach(), before).sum().item(),
            "weight": weights.sum().item(),
            "truncated": int((cap > 0) * ((before - sampler).exp() > cap * (1 + ROUNDING)).sum()),
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
    def _probed(self, examples: Sequence[Example]) -> Tensor:
        """Return log π of the tokens of a micro-batch, (D,)."""
        first = next(iter(self._micro_batches(examples)), [])
        return self._forward([examples[i] for i in first])[0] if first else torch.empty(0)

    @torch.no_grad()
    def _refuse_if_not_finite(self) -> None:
        """Check one response of the last update: a broken policy is broken for all of them."""
        if self._learnt_from is None:
            return
        logprobs, _ = self._forward([self._learnt_from])
        if not torch.isfinite(logprobs).all():
            raise PolicyError("the update left a policy whose probabilities are not finite")

    def _old_logprobs(self, examples: Sequence[Example]) -> Old:
        if self.settings.old_logprobs == "engine":
            if any(np.isnan(example.response.drawn_logprobs).any() for example in examples):
                why = "`learner.old_logprobs` = 'engine' needs its log-probabilities"
                raise EngineError(f"{why}, and the engine reported none; set it to 'learner'")
            to_device = {"dtype": torch.float32, "device": self.model.device}
            return [
                torch.as_tensor(example.response.drawn_logprobs, **to_device)
                for example in examples
            ]
        old: list[Tensor | None] = [None] * len(examples)
        batches = self._micro_batches(examples)

        @torch.no_grad()
        def rows_of(batch: list[int]) -> Sequence[Tensor]:
            members = [examples[i] for i in batch]
            lengths = [member.response.drawn for member in members]
            return torch.split(self._forward(members)[0], lengths)

        apply = map if self._threads is None else self._threads.map
        for batch, rows in zip(batches, apply(rows_of, batches), strict=True):
            for i, row in zip(batch, rows, strict=True):
                old[i] = row
        return old

    def _micro_batches(self, examples: Sequence[Example]) -> list[list[int]]:
        """Split into batches; responses that add nothing to the gradient are left out."""
        with_entropy = self.settings.entropy_coefficient != 0
        rows = [
            i for i, e in enumerate(examples) if e.response.drawn and (e.advantage or with_entropy)
        ]
        return list(micro_batches(examples, rows, self._micro_batch_tokens, self._run.packed))

    def _forward(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Compute log π and, for an entropy bonus, the entropy of every token drawn, (D,)."""
        return self._run(examples, with_entropy=self.settings.entropy_coefficient != 0)


def learner_threads(device: str, cpu_threads: int | None = None) -> int:
    """Count micro-batches that run at once: a CPU's cores over the threads of each; else 1.

    `OMP_NUM_THREADS` limits the cores that are counted. `device` is a kind, such as "cpu";
    `cpu_threads` are torch's own, by default as they are now.
    """
    if device != "cpu":
        return 1
    usable = usable_cores()
    most = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or usable)
    return max(1, min(usable, most) // (cpu_threads or torch.get_num_threads()))


def _metrics(totals: Mapping[str, float], grad_norms: Sequence[float]) -> dict[str, float]:
    """Average the sums over tokens, and the finite norms over updates."""
    tokens, tokens_run = max(1, totals["tokens"]), max(1, totals["tokens_run"])
    finite = [norm for norm in grad_norms if np.isfinite(norm)]
    return {
        "loss": totals["loss"] / tokens,
        "clip_fraction": totals["clipped"] / tokens,
        "importance_weight": totals["weight"] / tokens_run if totals["tokens_run"] else 1.0,
        "importance_truncated": totals["truncated"] / tokens_run,
        "grad_norm": float(np.mean(finite)) if finite else 0.0,
        "skipped_updates": len(grad_norms) - len(finite),
    }
