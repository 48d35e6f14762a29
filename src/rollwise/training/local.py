"""The backend in this process: the built-in learner, and an engine beside it."""

from pathlib import Path

import torch

from rollwise.config import TrainConfig
from rollwise.engines import ENGINES, Engine
from rollwise.engines.settings import context_of
from rollwise.errors import ConfigError
from rollwise.models.building import open_engine
from rollwise.models.loading import for_sampling, load_model
from rollwise.training.learner import Learner


class LocalBackend:
    """Trains with the built-in learner, on the checkpoint's model if there is a checkpoint."""

    def __init__(self, config: TrainConfig, checkpoint: Path | None) -> None:
        if not config.engine.make().can_train:
            training = " or ".join(f"`{name}`" for name, kind in ENGINES.items() if kind.can_train)
            raise ConfigError(
                f"`engine.type` must be {training} to train: the engine `{config.engine.type}` "
                "cannot take the learner's weights"
            )
        torch.manual_seed(config.seed)  # new adapters draw their weights from it
        weights = checkpoint / "model" if checkpoint else None
        model, self.tokenizer = load_model(config.model, weights)
        self.generation, self.context = model.generation_config, context_of(model.config)
        self._config, self._needs_model = config, config.engine.kind.needs_model
        merged, temperature = not self._needs_model, config.engine.temperature
        self.learner = Learner(model, config.learner, temperature, merged)

    def make_engine(self) -> Engine:
        """Make the engine that the settings name, with the learner's model or its weights."""
        model = self.learner.model
        drawn_from = for_sampling(model) if self._needs_model else model
        engine = open_engine(self._config, drawn_from, self.tokenizer)
        if not self._needs_model:  # a resumed run has other weights than the model it started from
            engine.load_weights(self.learner.weights())
        return engine
