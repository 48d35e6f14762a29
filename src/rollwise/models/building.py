"""From settings to what draws and grades responses: the model, the engine and the grader."""

import functools
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Generic, Protocol, Self, TypeVar

from transformers import PreTrainedTokenizerBase

from rollwise.config import EvaluateConfig, PrepareConfig, TrainConfig
from rollwise.engines import Engine, EpisodeEngine, EpisodeLimits
from rollwise.engines.settings import EngineInputs, context_of, end_tokens
from rollwise.environments import EpisodeEnvironment
from rollwise.errors import ConfigError
from rollwise.grading import Grader
from rollwise.grading.settings import make_grader
from rollwise.models.encoding import (
    EncodedPrompts,
    encode_conversation,
    encode_prompts,
    turn_encoder,
)
from rollwise.models.loading import in_bfloat16, model_path
from rollwise.models.saved import describe_saved, load_saved
from rollwise.sampling.draws import Key
from rollwise.tasks import Problem

Config = TrainConfig | EvaluateConfig | PrepareConfig

C = TypeVar("C", bound=Config)
"""The configuration that parts are made from."""


class Model(Protocol):
    """What responses are drawn from: a model that is kept here or elsewhere, trained or not.

    Attributes:
        tokenizer: Its tokenizer.
        generation: Its generation configuration, which may name end tokens; None if it has none.
        context: The most tokens, prompt and response, that it takes; None if unknown.
    """

    tokenizer: PreTrainedTokenizerBase
    generation: Any
    context: int | None

    def make_engine(self) -> Engine:
        """Make an engine that draws from it as it is now."""


class SavedModel:
    """A model that is not trained; only its description if the engine loads the model itself."""

    def __init__(self, config: Config) -> None:
        self._config = config
        if not config.engine.kind.needs_model:
            self._model, self.tokenizer = describe_saved(config.model)
        else:
            self._model, self.tokenizer = load_saved(config.model)
            if self._model.device.type == "cuda":
                in_bfloat16(self._model)
        self.generation = self._model.generation_config
        self.context = context_of(self._model.config)

    def make_engine(self) -> Engine:
        """Make the engine that the settings name."""
        return open_engine(self._config, self._model, self.tokenizer)


def open_engine(config: Config, model: Any, tokenizer: PreTrainedTokenizerBase) -> Engine:
    """Open the engine that the settings name, for prompts and what follows them in an episode.

    Raises:
        RollwiseError: The engine lacks something, or what is opened is no `Engine`.
    """
    own = config.engine
    path, limits = model_path(config.model.path), (_longest_prompt(config), own.max_new_tokens)
    inputs = EngineInputs(path, model, tokenizer, *limits, own.temperature, own.batch_size)
    engine: object = own.make().open(inputs)
    if not isinstance(engine, Engine):
        raise ConfigError(
            f"`engine.type`: {type(engine).__name__} must inherit from `rollwise.engines.Engine`"
        )
    return engine


def _longest_prompt(config: Config) -> int:
    """Return the most tokens from which a response, or a turn of an episode, is drawn."""
    further = config.episode.max_tokens if config.episode.plays else 0
    return config.data.max_prompt_tokens + further


class Parts(Generic[C]):
    """What draws and grades responses, by default with the settings' saved model.

    Each part is made when it is first used. Use it as a context manager, which closes the engine
    and the grader.
    """

    def __init__(self, config: C, model: Model | None = None) -> None:
        self.config, self._model = config, model
        self._problems: dict[Key, Problem] = {}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.close()

    def encode(self, problems: Iterable[Problem]) -> EncodedPrompts:
        """Encode problems; leave out those whose prompt is too long for a response to fit.

        The engine can play episodes of those that are kept. Raises what `encode_prompts` does.
        """
        lengths = self.config.data.max_prompt_tokens, self.config.engine.max_new_tokens
        fitting = encode_prompts(problems, self.model.tokenizer, *lengths, self.model.context)
        self._problems |= {problem.key: problem for problem in fitting.problems}
        return fitting

    @functools.cached_property
    def model(self) -> Model:
        """The given one, or the saved one."""
        return self._model or SavedModel(self.config)

    @functools.cached_property
    def grader(self) -> Grader:
        """The grader that the settings name."""
        grading, data, folder = self.config.grading, self.config.data, self.config.plugin_folder
        return self._held.enter_context(make_grader(grading, data, folder))

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine that the settings name; it plays episodes if they say so."""
        engine = self.model.make_engine()
        if self.config.episode.plays:
            engine = self._playing(engine)
        self._held.enter_context(engine)
        return engine

    def _playing(self, engine: Engine) -> EpisodeEngine:
        """Play draws as episodes, whose turns an engine draws and the chat template joins."""
        config, tokenizer = self.config, self.model.tokenizer
        environment: EpisodeEnvironment = config.episode.make()
        longest = _longest_prompt(config) + config.engine.max_new_tokens  # as the engine is opened
        limits = EpisodeLimits(
            turns=config.episode.max_turns,
            tokens=config.episode.max_tokens,
            context=min(self.model.context or longest, longest),
            turn_tokens=config.engine.max_new_tokens,
        )
        ends = end_tokens(self.model.generation, tokenizer)
        encode_turn = turn_encoder(tokenizer, ends, environment.roles)
        encode = functools.partial(encode_conversation, tokenizer)
        return EpisodeEngine(engine, environment, self._problems, encode_turn, encode, limits)
