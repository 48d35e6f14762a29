"""The learner at Tinker: sends examples; Tinker runs forward and backward passes and the optimizer.

It does for a model at Tinker what `rollwise.training.learner` does for one in this process: the
same advantages, averages and warm-up, so that an update is the same with one mini-batch.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tinker import types

from rollwise.config import LearnerSettings, TrainConfig
from rollwise.integrations.tinker.engine import as_engine_errors
from rollwise.step.response import Example

FILE = "tinker.json"
"""In a checkpoint's folder: the path at Tinker of weights and optimizer."""

log = logging.getLogger(__name__)


class TinkerLearner:
    """Updates adapters at Tinker by the policy gradient, averaged over a mini-batch.

    Each token's loss is −A π/π_sampler, clipped as in PPO (Schulman et al., 2017, equation 7) or
    not. The sampler's log-probabilities came with the responses, so the ratio corrects for
    numerical differences between sampler and trainer, and for the age of the weights drawn from.
    """

    def __init__(self, service: Any, config: TrainConfig) -> None:
        self.updates = 0
        self._service, self._model = service, config.model
        self._settings, self._own, self._seed = config.learner, config.backend.make(), config.seed
        self._training: Any = None
        self._saved: tuple[int, str] | None = None  # at Tinker each name can be given once

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, at most `mini_batches` of them, and return their metrics.

        A mini-batch that teaches nothing (no response, or none with an advantage) makes no update.

        Returns:
            `loss`: the mean over updates of the loss per response token; `clip_fraction`, the share
            of the step's tokens whose loss has no gradient because of the clip; and, over the
            tokens learned from, `sampler_gap` and `importance_weight` as the built-in learner's.
        """
        parts = np.array_split(np.arange(len(examples)), self._settings.mini_batches)
        updates = [self._update([examples[i] for i in part]) for part in parts]
        tokens = sum(example.response.drawn for example in examples)
        return _metrics([update for update in updates if update], tokens, self._clips)

    def weights(self) -> Mapping[str, Any]:
        """Return a sampling client of the current weights, which stay at Tinker."""
        with as_engine_errors("passing the weights to the sampler"):
            return {"client": self._client.save_weights_and_get_sampling_client().result()}

    def save(self, folder: Path) -> None:
        """Have Tinker keep weights and optimizer, and record where."""
        if self._saved is None or self._saved[0] != self.updates:
            with as_engine_errors("saving a checkpoint"):
                path = self._client.save_state(f"rollwise-{self.updates:06d}").result().path
            self._saved = self.updates, path
            log.info("checkpoint at Tinker: %s", path)
        (folder / FILE).write_text(json.dumps({"path": self._saved[1]}), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Resume from what Tinker keeps; an `EngineError` if it no longer keeps it."""
        path = json.loads((folder / FILE).read_text(encoding="utf-8"))["path"]
        with as_engine_errors(f"loading {path}"):
            begin = self._service.create_training_client_from_state_with_optimizer
            self._training = begin(path).result()

    @property
    def _client(self) -> Any:
        """The training client, whose adapters are created at the first use."""
        if self._training is None:
            name = self._own.base_model or self._model.path
            with as_engine_errors(f"creating adapters for {name!r}"):
                begin = self._service.create_lora_training_client
                training = begin(name, rank=self._model.lora_rank, seed=self._seed)
                self._training = training.result()
        return self._training

    @property
    def _clips(self) -> dict[str, float] | None:
        """The bounds of the ratio; None if there are none."""
        if self._own.loss == "importance_sampling":
            return None
        low, high = 1 - self._settings.clip_low, 1 + self._settings.clip_high
        return {"clip_low_threshold": low, "clip_high_threshold": high}

    def _update(self, examples: Sequence[Example]) -> "tuple[list[Example], Any] | None":
        """Make one update; returns the examples learned from, and Tinker's output."""
        taught = [example for example in examples if example.advantage != 0]
        if not taught:
            return None
        tokens = [sum(example.response.drawn for example in examples)] * len(taught)
        if self._settings.average == "responses":
            tokens = [len(examples) * max(1, example.response.drawn) for example in taught]
        data = list(map(make_datum, taught, tokens))
        with as_engine_errors("an update"):
            # Both requests are sent before waiting, so that Tinker runs them in one go.
            backward = self._client.forward_backward(data, self._own.loss, self._clips)
            step = self._client.optim_step(adam(self._settings, self.updates + 1))
            output = backward.result()
            step.result()
        self.updates += 1
        return taught, output


def make_datum(example: Example, tokens: float) -> Any:
    """Turn an example of P prompt and T response tokens into Tinker's form.

    Tinker predicts each token from those before it, so that all arrays have shape (P + T - 1,). It
    sums the loss over tokens, and we average: advantages are divided by `tokens`. At the tokens of
    the prompt and of an environment, advantage and log-probability are 0.
    """
    response = example.response
    whole = [*example.prompt, *response.tokens]
    before = np.zeros(len(example.prompt) - 1, np.float32)
    advantages = np.full(len(response.tokens), example.advantage / tokens, np.float32)
    if response.mask is not None:
        advantages[~response.mask] = 0.0
    return types.Datum(
        model_input=types.ModelInput.from_ints(whole[:-1]),
        loss_fn_inputs={
            "target_tokens": np.array(whole[1:], np.int64),
            "logprobs": np.concatenate([before, response.logprobs]).astype(np.float32),
            "advantages": np.concatenate([before, advantages]),
        },
    )


def adam(settings: LearnerSettings, update: int) -> Any:
    """Make the optimizer's settings for an update, given its number, counted from 1."""
    warmup = min(1.0, update / max(1, settings.warmup_updates))
    return types.AdamParams(
        learning_rate=settings.learning_rate * warmup,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=settings.weight_decay,
        grad_clip_norm=settings.max_grad_norm,
    )


def _metrics(
    updates: Sequence[tuple[list[Example], Any]], tokens: int, clips: Mapping[str, float] | None
) -> dict[str, float]:
    """Summarize a step's updates, each given by what it learned from and Tinker's output."""
    losses = [float(output.metrics["loss:sum"]) for _, output in updates]
    log_ratios, advantages_of = [np.zeros(0)], [np.zeros(0)]
    for taught, output in updates:
        for example, found in zip(taught, output.loss_fn_outputs, strict=True):
            response = example.response
            logprobs = np.asarray(found["logprobs"].data, np.float64)[-len(response.tokens) :]
            own = logprobs if response.mask is None else logprobs[response.mask]
            log_ratios.append(own - response.drawn_logprobs)
            advantages_of.append(np.full(response.drawn, example.advantage))
    log_ratio, advantages = np.concatenate(log_ratios), np.concatenate(advantages_of)
    ratio, held = np.exp(log_ratio), 0
    if clips is not None:  # beyond a bound, on the side that the advantage leads to
        above = (advantages > 0) & (ratio > clips["clip_high_threshold"])
        below = (advantages < 0) & (ratio < clips["clip_low_threshold"])
        held = int((above | below).sum())
    return {
        "loss": sum(losses) / max(1, len(losses)),
        "clip_fraction": held / max(1, tokens),
        "sampler_gap": float(np.abs(log_ratio).sum()) / max(1, len(log_ratio)),
        "importance_weight": float(ratio.mean()) if len(ratio) else 1.0,
    }
