"""TRL's `GRPOTrainer` with adaptive sampling; loaded where a tested release of TRL is installed."""

from rollwise.integrations.trl.releases import require_tested_release

require_tested_release()

from rollwise.integrations.trl.options import AdaptiveSampling  # noqa: E402
from rollwise.integrations.trl.trainer import AdaptiveGRPOTrainer  # noqa: E402

__all__ = ["AdaptiveGRPOTrainer", "AdaptiveSampling"]
