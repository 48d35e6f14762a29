"""Tinker as the backend of `rollwise train`: all but the model is in this process."""

import os
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, GenerationConfig

from rollwise.config import TrainConfig, make_config
from rollwise.config.base import Rule, refusals
from rollwise.engines.ends import end_tokens
from rollwise.engines.settings import context_of
from rollwise.errors import ConfigError
from rollwise.integrations.tinker.settings import KEY
from rollwise.models.loading import load_tokenizer, model_path
from rollwise.releases import unmet

if TYPE_CHECKING:
    from rollwise.integrations.tinker.engine import TinkerEngine

UNCHANGED = (
    *("model.lora_alpha", "model.lora_modules", "model.gradient_checkpointing"),
    *("learner.dual_clip", "learner.importance_cap", "learner.entropy_coefficient"),
    *("learner.max_divergence", "learner.passes"),
)
"""Settings that Tinker cannot follow."""


class TinkerBackend:
    """A model at Tinker, which draws from it and updates it; only its tokenizer is local.

    Making one signs in, with the key in the environment, and loads the tokenizer, which
    `model.path` names (a folder, or a name on the hub). The adapters are created when they are
    first needed, so that a resumed run creates none needlessly.
    """

    def __init__(self, config: TrainConfig, checkpoint: Path | None) -> None:
        if wrong := unsupported(config):
            raise ConfigError("\n".join(wrong))
        if reason := unmet("tinker"):
            raise ConfigError(reason)
        if not os.environ.get(KEY):
            raise ConfigError(f"Tinker needs its key in the environment variable {KEY}")
        import tinker

        from rollwise.integrations.tinker.engine import as_engine_errors
        from rollwise.integrations.tinker.learner import TinkerLearner

        self._config, self._path = config, model_path(config.model.path)
        self.tokenizer = load_tokenizer(self._path)
        self.generation: Any = None
        with suppress(OSError):  # the model may have no file of generation settings
            self.generation = GenerationConfig.from_pretrained(self._path)
        self.context: int | None = None
        with suppress(OSError, ValueError):  # of some models only the tokenizer is public
            shape = AutoConfig.from_pretrained(self._path, trust_remote_code=False)
            self.context = context_of(shape)
        with as_engine_errors("signing in"):
            self.learner = TinkerLearner(tinker.ServiceClient(), config)

    def make_engine(self) -> "TinkerEngine":
        """Make the engine, which draws from the learner's model as it is now; callers close it."""
        from rollwise.integrations.tinker.engine import TinkerEngine

        settings = self._config.engine
        engine = TinkerEngine(
            self.tokenizer,
            end_tokens(self.generation, self.tokenizer),
            self.context,
            settings.max_new_tokens,
            settings.batch_size,
            self._config.backend.make().draw_timeout,
        )
        engine.load_weights(self.learner.weights())
        return engine


def unsupported(config: TrainConfig) -> list[str]:
    """Describe what each setting that Tinker cannot follow must be."""
    rules: list[Rule] = [
        ("engine.type", ("transformers",), "Tinker draws, so leave it at its default"),
        ("engine.temperature", (1,), "Tinker learns at temperature 1"),
    ]
    default, why = make_config(), "Tinker cannot follow it"
    rules += [(name, (attrgetter(name)(default),), why) for name in UNCHANGED]
    wrong = refusals(rules, lambda name: attrgetter(name)(config))
    if config.model.lora_rank < 1:
        wrong.append("`model.lora_rank` must be at least 1: Tinker trains adapters; it is 0")
    return wrong
