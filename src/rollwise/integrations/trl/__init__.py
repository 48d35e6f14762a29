"""TRL's `GRPOTrainer` with adaptive sampling; loaded where TRL has what it needs."""

from rollwise.integrations.trl.upstream import UPSTREAM
from rollwise.releases import unmet

if reason := unmet("trl", UPSTREAM):
    raise ImportError(f"rollwise.integrations.trl: {reason}")

from rollwise.integrations.trl.methods import grpo_config, method_sampling, single_responses
from rollwise.integrations.trl.options import AdaptiveSampling
from rollwise.integrations.trl.trainer import AdaptiveGRPOTrainer

__all__ = [
    "AdaptiveGRPOTrainer",
    "AdaptiveSampling",
    "grpo_config",
    "method_sampling",
    "single_responses",
]
