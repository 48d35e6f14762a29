"""A model, an engine and a grader: what draws the responses of a command."""

import functools
import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from rollwise.config import EvaluateConfig, ModelSettings, ModelSource, PrepareConfig
from rollwise.engines import Engine
from rollwise.engines.local import end_tokens
from rollwise.engines.server import ServerEngine
from rollwise.engines.transformers import make_engine
from rollwise.engines.vllm import VLLMEngine
from rollwise.errors import ConfigError, ModelError
from rollwise.grading import Grader
from rollwise.tasks import EncodedPrompts, Problem
from rollwise.training.checkpoints import checkpoints
from rollwise.training.data import encode_fitting
from rollwise.training.model import load_model, load_tokenizer, model_path
from rollwise.training.run import in_bfloat16, make_grader

ADAPTERS = "adapter_config.json"


def find_model(path: str) -> str:
    """Find the model of a training run or of one of its checkpoints; else it is `path` itself.

    Raises:
        ModelError: A run that has no checkpoint yet.
    """
    folder = Path(path).expanduser()
    if (folder / "checkpoints").is_dir():
        found = checkpoints(folder / "checkpoints")
        if not found:
            raise ModelError(f"model.path: the run in {path} has no checkpoint yet")
        folder = found[-1]
    model = folder / "model"
    is_there = (model / "config.json").exists() or (model / ADAPTERS).exists()
    return str(model) if is_there else path


class Drawer:
    """Loads what it is asked for, when it is asked: a finished run needs no model.

    Use it as a context manager: it closes the engine and the grader.

    Args:
        config: The settings of the command.
    """

    def __init__(self, config: EvaluateConfig | PrepareConfig) -> None:
        self.config = config
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.close()

    def encode(self, problems: list[Problem]) -> EncodedPrompts:
        """Encode problems; leave out those whose prompt leaves no room for a response.

        Raises:
            DataError: No problem is left.
            ConfigError: The model's context has no room at all.
            ModelError: The model cannot be loaded.
        """
        lengths = self.config.data.max_prompt_tokens, self.config.engine.max_new_tokens
        return encode_fitting(problems, self.tokenizer, *lengths, self._context)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's."""
        return self._loaded[1]

    @functools.cached_property
    def grader(self) -> Grader:
        """Made by the settings."""
        return self._held.enter_context(make_grader(self.config.grading, self.config.data))

    @functools.cached_property
    def engine(self) -> Engine:
        """Made by the settings, over the model."""
        model, tokenizer = self._loaded
        settings = self.config.engine
        arguments = (settings.max_new_tokens, settings.temperature, settings.batch_size)
        if settings.type == "transformers":
            return make_engine(model, tokenizer, *arguments)
        if settings.type == "server":
            server = ServerEngine(self.config.server, tokenizer, *arguments)
            return self._held.enter_context(server)
        longest = self.config.data.max_prompt_tokens + settings.max_new_tokens
        engine = VLLMEngine(
            model_path(self.config.model.path),
            tokenizer,
            end_tokens(model.generation_config, tokenizer),
            min(longest, self._context or longest),
            *arguments,
            self.config.vllm,
        )
        return self._held.enter_context(engine)

    @functools.cached_property
    def _loaded(self) -> tuple[Any, PreTrainedTokenizerBase]:
        """The model, or as much as says how another process uses it, and its tokenizer."""
        source = self.config.model
        if self.config.engine.type != "transformers":
            return _described(source)
        model, tokenizer = _load(source)
        return (in_bfloat16(model) if model.device.type == "cuda" else model), tokenizer

    @property
    def _context(self) -> int | None:
        context: int | None = getattr(self._loaded[0].config, "max_position_embeddings", None)
        return context


def _load(source: ModelSource) -> tuple[Any, PreTrainedTokenizerBase]:
    """Load a model, or adapters with the model that they are for."""
    adapters = Path(source.path).expanduser()
    if not (adapters / ADAPTERS).exists():
        return load_model(ModelSettings(**source.model_dump()))
    # Any rank says that there are adapters; they bring their own.
    settings = {**source.model_dump(), "path": _base_of(adapters), "lora_rank": 1}
    return load_model(ModelSettings(**settings), adapters)


def _base_of(adapters: Path) -> str:
    file = adapters / ADAPTERS
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"model.path: {file} does not say which model the adapters are for ({error!r})"
        ) from None


def _described(source: ModelSource) -> tuple[Any, PreTrainedTokenizerBase]:
    """Read what a model says of itself, without its weights."""
    path = model_path(source.path)
    if (Path(path) / ADAPTERS).exists():
        raise ConfigError(
            f"`engine.type` must be `transformers` for adapters, and {path} holds adapters; or "
            "merge them into their model"
        )
    tokenizer = load_tokenizer(path)
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:  # it has no such file
        generation = GenerationConfig.from_model_config(config)
    return SimpleNamespace(config=config, generation_config=generation), tokenizer
