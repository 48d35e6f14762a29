"""Tinker as the backend of `rollwise train`: all but the model is in this process."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from rollwise.config import TrainConfig
from rollwise.engines.ends import end_tokens
from rollwise.errors import ConfigError
from rollwise.integrations.tinker.requirements import missing, unsupported
from rollwise.models.loading import load_tokenizer, model_path

if TYPE_CHECKING:
    from rollwise.integrations.tinker.engine import TinkerEngine


class TinkerBackend:
    """A model at Tinker, which draws from it and updates it; only its tokenizer is local.

    Making one signs in, with the key in the environment, and loads the tokenizer, which
    `model.path` names (a folder, or a name on the hub). The adapters are created when they are
    first needed, so that a run that is resumed creates none in vain.

    Raises:
        ConfigError: Tinker cannot follow a setting (a line for each), its SDK is not installed or
            of a release that is not tested, or there is no key.
        ModelError: The tokenizer cannot be loaded.
        EngineError: Tinker refuses access.
    """

    def __init__(self, config: TrainConfig, checkpoint: Path | None) -> None:
        if wrong := unsupported(config):
            raise ConfigError("\n".join(wrong))
        if reason := missing():
            raise ConfigError(reason)
        import tinker

        from rollwise.integrations.tinker.client import as_engine_errors
        from rollwise.integrations.tinker.learner import TinkerLearner

        self._config, self._path = config, model_path(config.model.path)
        self.tokenizer = load_tokenizer(self._path)
        self.context = _context(self._path)
        with as_engine_errors("signing in"):
            self.learner = TinkerLearner(tinker.ServiceClient(), config)

    def make_engine(self) -> "TinkerEngine":
        """Make the engine, which draws from the learner's model as it is now; close it."""
        from rollwise.integrations.tinker.engine import TinkerEngine

        settings = self._config.engine
        engine = TinkerEngine(
            self.tokenizer,
            _ends(self._path, self.tokenizer),
            self.context,
            settings.max_new_tokens,
            settings.batch_size,
            self._config.backend.make().draw_timeout,
        )
        engine.load_weights(self.learner.weights())
        return engine


def _context(path: str) -> int | None:
    """Read how many tokens a model takes; None if only its tokenizer is public."""
    try:
        shape = AutoConfig.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError):
        return None
    return getattr(shape, "max_position_embeddings", None)


def _ends(path: str, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the tokens that end a response; the model may have no file of generation settings."""
    generation = None
    with suppress(OSError):
        generation = GenerationConfig.from_pretrained(path)
    return end_tokens(generation, tokenizer)
