"""The settings of the learner, and of what a run evaluates, keeps and writes down."""

from typing import Literal

from pydantic import Field

from rollwise.config.group import from_recipe
from rollwise.config.sections import AT_A_TIME, Section
from rollwise.sampling.schedules import MOST_SAMPLES
from rollwise.step.recipe import Average

MICRO_BATCH_TOKENS = 16_384
"""The most tokens in one forward pass, by default, where not on a CPU."""


class LearnerSettings(Section):
    """How the model learns."""

    optimizer: Literal["adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"] = "adamw"
    """AdamW; with its state in 8 bits instead of 32; or with a paged state, which leaves the GPU
    where room is needed, for the machine's memory. All but `adamw` need bitsandbytes."""
    learning_rate: float = Field(1e-6, gt=0, le=1e30)
    """Of AdamW, after the warm-up."""
    warmup_updates: int = Field(10, ge=0)
    """Updates over which the learning rate rises to its value."""
    weight_decay: float = Field(0.0, ge=0)
    """Of AdamW."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm."""
    response_cap: float = Field(0.0, ge=0)
    """Clip each response's gradient between the layers of the model to this multiple of the median
    norm (0: off). `step.response_cap` does so by an estimate, in any trainer."""
    average: Average = from_recipe("learner.average")
    mini_batches: int = Field(1, ge=1)
    """Updates a step; each takes an equal share of the step's responses."""
    old_logprobs: Literal["learner", "engine"] = "learner"
    """What the probability ratio of a step's later updates compares with: log-probabilities that
    the learner computes before the first (`learner`), or those that the engine reported (`engine`),
    which saves a forward pass and suits an engine that computes as the learner does."""
    micro_batch_tokens: int | None = Field(None, ge=1)
    """The most tokens in one forward pass, padding counted if there is any; less needs less memory.
    By default 16,384, and on a CPU 1,024, which its caches hold."""
    packed: bool = True
    """Run responses one after another in a single row, without padding, where the model's
    architecture is known to allow it; `false` pads them to one length."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """The probability ratio is clipped below 1 − this."""
    clip_high: float = Field(0.28, gt=0)
    """And above 1 + this."""
    dual_clip: float = Field(10.0, gt=1)
    """With a negative advantage, a token's loss is at most this many times its size."""
    importance_cap: float = Field(2.0, ge=0)
    """Each token's loss is multiplied by its probability under the learner over that under the
    engine that drew it, at most this much; 0 turns this correction off."""
    max_divergence: float = Field(0.0, ge=0)
    """Leave a response out of an update if the Bernoulli divergence of the engine's probabilities
    from the learner's, averaged over its tokens, exceeds this (FlashREINFORCE: 3e-3 to 5e-3). 0
    leaves none out."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""


class EvaluationSettings(Section):
    """How good the model is on held-out problems."""

    every: int = Field(20, ge=0)
    """Steps between evaluations; 0 evaluates only before and after."""
    every_tokens: int = Field(0, ge=0)
    """Response tokens between evaluations, for runs that are compared at equal tokens. If it is
    set, `evaluation.every` is 0 by default."""
    problems: int = Field(256, ge=1, le=AT_A_TIME)
    """Held-out problems used, at most."""
    samples: int = Field(8, ge=1, le=MOST_SAMPLES)
    """Responses to each; the figures are avg@8 and pass@8."""


class CheckpointSettings(Section):
    """Checkpoints, to resume from."""

    every: int = Field(50, ge=0)
    """Steps between checkpoints; 0 writes only the last."""
    keep: int = Field(2, ge=1)
    """The newest checkpoints that are kept."""
    grace: float = Field(0.0, ge=0, le=86_400)
    """Seconds that a step has left to be drawn after SIGTERM or SIGHUP; then it is dropped, and the
    run saved as it was before it. Above 0 only where these signals reach the main process alone."""


class RecordSettings(Section):
    """What a run records."""

    trackers: list[str] = Field(default_factory=list)
    """Where metrics also go, such as `tensorboard` and `wandb` (through `accelerate`)."""
    prompts_per_step: int = Field(4, ge=0)
    """Prompts of each step whose responses are all kept in `samples/`."""
