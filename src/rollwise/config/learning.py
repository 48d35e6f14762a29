"""The settings of the learner, and of what a run evaluates, keeps and writes down."""

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from rollwise.config.sections import Held, Section
from rollwise.config.step import of_recipe
from rollwise.sampling.checks import Above0, Count, Inner, Whole
from rollwise.sampling.schedules import MOST_SAMPLES
from rollwise.step.recipe import Average

MICRO_BATCH_TOKENS = 16_384
"""The most tokens in one forward pass, by default, except on a CPU."""

CPU_MICRO_BATCH_TOKENS = 1_024
"""The same on a CPU: what its caches hold."""


class LearnerSettings(Section):
    """How the model learns."""

    learning_rate: Annotated[float, Gt(0), Le(1e30)] = 1e-6
    """AdamW's learning rate after the warm-up."""
    warmup_updates: Whole = 10
    """Updates over which the learning rate rises to its value."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """AdamW's weight decay."""
    max_grad_norm: Above0 = 1.0
    """Norm to which larger gradients are scaled down."""
    average: Average = of_recipe("average")
    mini_batches: Count = 1
    """Weight updates per step, each with an equal share of its responses, by prompts at random."""
    passes: Count = 1
    """Maximum number of times that a step learns from each of its responses."""
    target_kl: Above0 = 0.03
    """KL divergence per token from the policy that drew, at which further passes end."""
    old_logprobs: Literal["learner", "engine"] = "learner"
    """Old log-probabilities of the ratio: computed by the learner, or reported by the engine, which
    saves a forward pass and suits an engine that computes as the learner does."""
    micro_batch_tokens: Count | None = None
    """Maximum tokens of one forward pass, padding included; default: 16,384, or as many as fit on
    a GPU; 1,024 on a CPU."""
    packed: bool = True
    """Whether responses are packed without padding where the architecture is known to allow it."""
    clip_low: Inner = 0.2
    """Lower clip of the probability ratio, at 1 − this."""
    clip_high: Above0 = 0.28
    """Upper clip of the probability ratio, at 1 + this."""
    dual_clip: Annotated[float, Gt(1)] = 10.0
    """Dual clip: limit of a token's loss where its advantage is negative, as a multiple of that."""
    importance_cap: Annotated[float, Ge(0)] = 2.0
    """Maximum importance weight of a token: its probability under the learner over that under the
    engine (0: off)."""
    max_divergence: Annotated[float, Ge(0)] = 0.0
    """Mean Bernoulli divergence per token of the engine's probabilities from the learner's above
    which a response is left out of an update (FlashREINFORCE: 3e-3 to 5e-3; 0: off)."""
    entropy_coefficient: Annotated[float, Ge(0)] = 0.0
    """Weight of the entropy bonus."""

    def tokens_at_a_time(self, on_gpu: bool) -> int:
        """Return the most tokens of one forward pass, by the setting or its default."""
        default = MICRO_BATCH_TOKENS if on_gpu else CPU_MICRO_BATCH_TOKENS
        return self.micro_batch_tokens or default


class EvaluationSettings(Section):
    """How good the model is on held-out problems."""

    every: Whole = 20
    """Steps between evaluations (0: only before and after the run)."""
    every_tokens: Whole = 0
    """Response tokens between evaluations; if it is set, `evaluation.every` is 0 by default."""
    problems: Held = 256
    """Maximum number of held-out problems."""
    samples: Annotated[int, Ge(1), Le(MOST_SAMPLES)] = 8
    """Responses per held-out problem; with 8, the figures are avg@8 and pass@8."""


class CheckpointSettings(Section):
    """Checkpoints, to resume from."""

    every: Whole = 50
    """Steps between checkpoints (0: only at the end)."""
    keep: Count = 2
    """Number of newest checkpoints that are kept."""


class RecordSettings(Section):
    """What a run records."""

    trackers: list[str] = field(default_factory=list)
    """Trackers that get the metrics too, by their names in `accelerate`: `tensorboard`, `wandb`."""
    prompts_per_step: Whole = 4
    """Prompts per step whose responses are all kept in `samples/`."""
