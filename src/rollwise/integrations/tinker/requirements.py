"""What of the settings, and of what is installed, Tinker does not go with."""

import os
from importlib.metadata import PackageNotFoundError, version

from rollwise.config import LearnerSettings, ModelSettings, TrainConfig

KEY = "TINKER_API_KEY"

TESTED = ((0, 30), (0, 39))
"""The SDK's versions: from the first, below the second."""


def missing() -> str | None:
    """Say in a sentence what keeps this process from using Tinker; None if nothing does."""
    try:
        found = version("tinker")
    except PackageNotFoundError:
        return "backend.type = 'tinker' needs Tinker's SDK: pip install 'rollwise[tinker]'"
    low, high = TESTED
    if not low <= tuple(int(part) for part in found.split(".")[:2]) < high:
        return (
            f"tinker {found} is installed, and rollwise is tested with tinker from "
            f"{low[0]}.{low[1]} to below {high[0]}.{high[1]}"
        )
    if not os.environ.get(KEY):
        return f"backend.type = 'tinker' needs Tinker's key in the environment variable {KEY}"
    return None


def unsupported(config: TrainConfig) -> list[str]:
    """Say of each setting that Tinker cannot follow what it must be."""
    model, learner, engine = config.model, config.learner, config.engine
    wrong = {
        "`engine.type` must be `transformers`, its default, for Tinker draws; it is "
        f"`{engine.type}`": engine.type != "transformers",
        "`engine.temperature` must be 1, for Tinker learns at temperature 1; it is "
        f"{engine.temperature:g}": engine.temperature != 1,
        "`model.lora_rank` must be at least 1, for Tinker trains adapters; it is "
        f"{model.lora_rank}": model.lora_rank < 1,
    }
    told = [sentence for sentence, is_so in wrong.items() if is_so]
    own: tuple[tuple[str, ModelSettings | LearnerSettings, tuple[str, ...]], ...] = (
        ("model", model, ("lora_alpha", "lora_modules", "gradient_checkpointing")),
        ("learner", learner, ("dual_clip", "importance_cap", "entropy_coefficient")),
    )
    for section, settings, names in own:
        for name in names:
            given, default = getattr(settings, name), type(settings).model_fields[name].default
            if given != default:
                told.append(
                    f"`{section}.{name}` is not Tinker's to follow; leave it at {default!r}, it is "
                    f"{given!r}"
                )
    return told
