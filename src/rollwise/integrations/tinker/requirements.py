"""Which settings Tinker cannot follow, and what it needs installed."""

import os

from rollwise.config import LearnerSettings, ModelSettings, TrainConfig
from rollwise.releases import unmet

KEY = "TINKER_API_KEY"


def missing() -> str | None:
    """Say in a sentence why Tinker cannot be used; None if it can."""
    if reason := unmet("tinker"):
        return reason
    if not os.environ.get(KEY):
        return f"backend.type = 'tinker' needs Tinker's key in the environment variable {KEY}"
    return None


def unsupported(config: TrainConfig) -> list[str]:
    """Say what each setting that Tinker cannot follow must be."""
    model, learner, engine = config.model, config.learner, config.engine
    wrong = {
        "`engine.type` must be `transformers`, its default, because Tinker draws; it is "
        f"`{engine.type}`": engine.type != "transformers",
        "`engine.temperature` must be 1, because Tinker learns at temperature 1; it is "
        f"{engine.temperature:g}": engine.temperature != 1,
        "`model.lora_rank` must be at least 1, because Tinker trains adapters; it is "
        f"{model.lora_rank}": model.lora_rank < 1,
    }
    told = [sentence for sentence, is_so in wrong.items() if is_so]
    own: tuple[tuple[str, ModelSettings | LearnerSettings, tuple[str, ...]], ...] = (
        ("model", model, ("lora_alpha", "lora_modules", "gradient_checkpointing")),
        (
            "learner",
            learner,
            (
                "optimizer",
                "dual_clip",
                "importance_cap",
                "entropy_coefficient",
                "response_cap",
                "max_divergence",
            ),
        ),
    )
    for section, settings, names in own:
        for name in names:
            given, default = getattr(settings, name), type(settings).model_fields[name].default
            if given != default:
                told.append(
                    f"Tinker cannot follow `{section}.{name}`; leave it at {default!r}, it is "
                    f"{given!r}"
                )
    return told
