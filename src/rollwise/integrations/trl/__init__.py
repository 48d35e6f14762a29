"""TRL's `GRPOTrainer` with adaptive sampling; loaded where a tested release of TRL is installed."""

from rollwise.releases import unmet

if reason := unmet("trl"):
    raise ImportError(f"rollwise.integrations.trl: {reason}")

from rollwise.integrations.trl.options import AdaptiveSampling, single_responses
from rollwise.integrations.trl.trainer import AdaptiveGRPOTrainer

__all__ = ["AdaptiveGRPOTrainer", "AdaptiveSampling", "single_responses"]
