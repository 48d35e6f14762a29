"""Tinker as the backend of `rollwise train`."""

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import AutoConfig, GenerationConfig

from rollwise.config import TrainConfig
from rollwise.engines.local import end_tokens
from rollwise.errors import ConfigError
from rollwise.integrations.tinker.requirements import missing, unsupported
from rollwise.training.model import load_tokenizer, model_path

if TYPE_CHECKING:
    from rollwise.integrations.tinker.engine import TinkerEngine


class TinkerBackend:
    """A model at Tinker, which draws from it and updates it; only its tokenizer is here.

    Args:
        config: The settings; `model.path` says whose tokenizer, and is the model's name there.
        checkpoint: The checkpoint that is gone on from, if any; `learner.load` does that.

    Raises:
        ConfigError: Tinker cannot follow a setting, its SDK is not installed, or there is no key.
        ModelError: The tokenizer cannot be loaded.
        EngineError: Tinker refuses access.
    """

    def __init__(self, config: TrainConfig, checkpoint: Path | None) -> None:
        if wrong := unsupported(config):
            raise ConfigError("\n".join(wrong))
        if reason := missing():
            raise ConfigError(reason)
        import tinker

        from rollwise.integrations.tinker.client import told_as_ours
        from rollwise.integrations.tinker.learner import TinkerLearner

        self._config, path = config, model_path(config.model.path)
        self.tokenizer = load_tokenizer(path)
        self.context = _context(path)
        with told_as_ours("signing in"):
            self.learner = TinkerLearner(tinker.ServiceClient(), config)

    def make_engine(self) -> "TinkerEngine":
        """Make the engine, which draws from the learner's model as it is now."""
        from rollwise.integrations.tinker.engine import TinkerEngine

        settings = self._config.engine
        engine = TinkerEngine(
            self.tokenizer,
            end_tokens(_generation(model_path(self._config.model.path)), self.tokenizer),
            self.context,
            settings.max_new_tokens,
            settings.batch_size,
            self._config.tinker.draw_timeout,
        )
        engine.load_weights(self.learner.weights())
        return engine


def _context(path: str) -> int | None:
    """Read how many tokens a model takes; of some at Tinker only the tokenizer is to be had."""
    try:
        shape = AutoConfig.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError):
        return None
    return getattr(shape, "max_position_embeddings", None)


def _generation(path: str) -> GenerationConfig | None:
    """Read a model's settings of generation; not every model has a file of them."""
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        return None
