"""The settings of the learner, and of what a run evaluates, keeps and writes down."""

from typing import Literal

from pydantic import Field

from rollwise.config.sections import AT_A_TIME, Section
from rollwise.config.step import from_recipe
from rollwise.sampling.schedules import MOST_SAMPLES
from rollwise.step.recipe import Average

MICRO_BATCH_TOKENS = 16_384
"""The most tokens in one forward pass, by default, except on a CPU."""


class LearnerSettings(Section):
    """How the model learns."""

    learning_rate: float = Field(1e-6, gt=0, le=1e30)
    """Set AdamW's learning rate after the warm-up."""
    warmup_updates: int = Field(10, ge=0)
    """Raise the learning rate to its value over this many updates."""
    weight_decay: float = Field(0.0, ge=0)
    """Set AdamW's weight decay."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Scale gradients down to this norm."""
    average: Average = from_recipe("learner.average")
    mini_batches: int = Field(1, ge=1)
    """Update the weights this many times a step, each time with an equal share of its responses."""
    old_logprobs: Literal["learner", "engine"] = "learner"
    """Compare the probabilities of a step's later updates with those that the learner computes
    before the first (`learner`), or with those that the engine reported (`engine`), which saves a
    forward pass and suits an engine that computes as the learner does."""
    micro_batch_tokens: int | None = Field(None, ge=1)
    """Put at most this many tokens, padding included, into one forward pass; fewer need less
    memory. By default 16,384, or 1,024 on a CPU, whose caches hold that."""
    packed: bool = True
    """Join responses in a single row, without padding, where the model's architecture is known to
    allow it; `false` pads them to one length."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """Clip the probability ratio below 1 − this."""
    clip_high: float = Field(0.28, gt=0)
    """Clip the probability ratio above 1 + this."""
    dual_clip: float = Field(10.0, gt=1)
    """Limit a token's loss to this many times the size of a negative advantage."""
    importance_cap: float = Field(2.0, ge=0)
    """Multiply each token's loss by the ratio of its probability under the learner to that under
    the engine that drew it, but by at most this (0: off)."""
    max_divergence: float = Field(0.0, ge=0)
    """Leave a response out of an update if the Bernoulli divergence of the engine's probabilities
    from the learner's, averaged over its tokens, exceeds this (FlashREINFORCE: 3e-3 to 5e-3; 0:
    off)."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight the entropy bonus by this."""


class EvaluationSettings(Section):
    """How good the model is on held-out problems."""

    every: int = Field(20, ge=0)
    """Evaluate at intervals of this many steps (0: only before and after the run)."""
    every_tokens: int = Field(0, ge=0)
    """Evaluate at intervals of this many response tokens, for runs that are compared at equal
    tokens. If it is set, `evaluation.every` is 0 by default."""
    problems: int = Field(256, ge=1, le=AT_A_TIME)
    """Evaluate on at most this many held-out problems."""
    samples: int = Field(8, ge=1, le=MOST_SAMPLES)
    """Draw this many responses to each; the figures are avg@8 and pass@8."""


class CheckpointSettings(Section):
    """Checkpoints, to resume from."""

    every: int = Field(50, ge=0)
    """Write a checkpoint at intervals of this many steps (0: only the last)."""
    keep: int = Field(2, ge=1)
    """Keep this many of the newest checkpoints."""


class RecordSettings(Section):
    """What a run records."""

    trackers: list[str] = Field(default_factory=list)
    """Also send metrics to these, such as `tensorboard` and `wandb` (through `accelerate`)."""
    prompts_per_step: int = Field(4, ge=0)
    """Keep all responses to this many prompts of each step in `samples/`."""
