"""The tokenizer, the engine and the grader of `rollwise evaluate` and `prepare`."""

import functools
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from transformers import PreTrainedTokenizerBase

from rollwise.config import EvaluateConfig, PrepareConfig
from rollwise.engines import Engine
from rollwise.engines.factory import make_engine, needs_model
from rollwise.grading import Grader
from rollwise.grading.factory import make_grader
from rollwise.models.encoding import EncodedPrompts, encode_fitting
from rollwise.models.loading import in_bfloat16, model_path
from rollwise.models.playing import play_episodes
from rollwise.models.saved import describe_saved, load_saved
from rollwise.sampling.draws import Key
from rollwise.tasks import Problem


class Components:
    """Loads the tokenizer, the engine and the grader when they are first used.

    A finished run needs none of them. Use it as a context manager, which closes them.

    Args:
        config: The settings of the command.
    """

    def __init__(self, config: EvaluateConfig | PrepareConfig) -> None:
        self.config = config
        self._problems: dict[Key, Problem] = {}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.close()

    def encode(self, problems: list[Problem]) -> EncodedPrompts:
        """Encode problems; leave out those whose prompt is too long for a response to fit.

        The engine can play episodes of those that are kept.

        Raises:
            DataError: No problem is left.
            ConfigError: The model's context is too short for any prompt.
            ModelError: The model cannot be loaded.
        """
        lengths = self.config.data.max_prompt_tokens, self.config.engine.max_new_tokens
        fitting = encode_fitting(problems, self.tokenizer, *lengths, self._context)
        self._problems |= {problem.key: problem for problem in fitting.problems}
        return fitting

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the model."""
        return self._loaded[1]

    @functools.cached_property
    def grader(self) -> Grader:
        """The grader that the settings name."""
        config = self.config
        return self._held.enter_context(
            make_grader(config.grading, config.data, config.plugin_folder)
        )

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine that the settings name, with the model; it plays episodes if they say so."""
        model, tokenizer = self._loaded
        config = self.config
        engine = make_engine(
            config.engine,
            model_path(config.model.path),
            model,
            tokenizer,
            config.data.max_prompt_tokens,
        )
        if config.episode.plays:
            engine = play_episodes(
                config.episode,
                config.data.source(config.in_episodes),
                engine,
                self._problems,
                tokenizer,
                self._context,
                config.engine.max_new_tokens,
            )
        if isinstance(engine, AbstractContextManager):
            self._held.enter_context(engine)
        return engine

    @functools.cached_property
    def _loaded(self) -> tuple[Any, PreTrainedTokenizerBase]:
        """The model and its tokenizer; only its description where the engine loads it itself."""
        source = self.config.model
        if not needs_model(self.config.engine):
            return describe_saved(source)
        model, tokenizer = load_saved(source)
        return (in_bfloat16(model) if model.device.type == "cuda" else model), tokenizer

    @property
    def _context(self) -> int | None:
        context: int | None = getattr(self._loaded[0].config, "max_position_embeddings", None)
        return context
