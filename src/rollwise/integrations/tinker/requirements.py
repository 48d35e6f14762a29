"""Which settings Tinker cannot follow, and what it needs installed."""

import os
from operator import attrgetter

from rollwise.config import TrainConfig
from rollwise.config.base import Rule, refusals
from rollwise.releases import unmet

KEY = "TINKER_API_KEY"

UNCHANGED = (
    *("model.lora_alpha", "model.lora_modules", "model.gradient_checkpointing"),
    *("learner.dual_clip", "learner.importance_cap", "learner.entropy_coefficient"),
    *("learner.response_cap", "learner.max_divergence"),
)
"""Settings that Tinker cannot follow."""


def missing() -> str | None:
    """Say in a sentence why Tinker cannot be used; None if it can."""
    if reason := unmet("tinker"):
        return reason
    if not os.environ.get(KEY):
        return f"backend.type = 'tinker' needs Tinker's key in the environment variable {KEY}"
    return None


def unsupported(config: TrainConfig) -> list[str]:
    """Say what each setting that Tinker cannot follow must be."""
    rules: list[Rule] = [
        ("engine.type", ("transformers",), "Tinker draws, so leave it at its default"),
        ("engine.temperature", (1,), "Tinker learns at temperature 1"),
    ]
    default, why = TrainConfig(), "Tinker cannot follow it"
    rules += [(name, (attrgetter(name)(default),), why) for name in UNCHANGED]
    wrong = refusals(rules, lambda name: attrgetter(name)(config))
    if config.model.lora_rank < 1:
        wrong.append("`model.lora_rank` must be at least 1: Tinker trains adapters; it is 0")
    return wrong
