"""The engines that `engine.type` names: the settings of each, and how it is opened.

Light to import: an engine's libraries are imported when it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rollwise.engines.engine import Engine
from rollwise.engines.options import ServerOptions, VLLMOptions


@dataclass(frozen=True)
class EngineInputs:
    """What an engine is opened with.

    Attributes:
        path: The model: a folder, or a name on the hub.
        model: The model itself if the engine's `needs_model` is true; otherwise any object with its
            `config` and its `generation_config`.
        tokenizer: Its tokenizer.
        max_prompt_tokens: The most tokens of a prompt.
        max_new_tokens: Responses are cut here.
        temperature: Of sampling; above 0.
        batch_size: The most responses drawn at a time.
    """

    path: str
    model: Any
    tokenizer: Any
    max_prompt_tokens: int
    max_new_tokens: int
    temperature: float
    batch_size: int

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its response together, as far as the model allows."""
        longest = self.max_prompt_tokens + self.max_new_tokens
        return min(longest, getattr(self.model.config, "max_position_embeddings", None) or longest)


class EngineSettings:
    """Base class of the engines that `engine.type` can name.

    A subclass is a frozen dataclass, whose fields are the engine's settings. Write `open`.

    Attributes:
        needs_model: The engine draws with the model in this process, which is loaded for it. If
            not, it gets its weights through `Engine.load_weights`, adapters merged in.
        can_train: The engine takes the learner's weights.
        drawing_defaults: Setting -> its default where nothing is trained beside the engine. It
            counts for the engines that come with rollwise, not for plug-ins.
    """

    needs_model: ClassVar[bool] = False
    can_train: ClassVar[bool] = True
    drawing_defaults: ClassVar[Mapping[str, Any]] = {}

    def open(self, inputs: EngineInputs) -> Engine:
        """Make the engine; if it has resources to release, it is a context manager.

        Raises:
            RollwiseError: Something is missing or does not start.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class TransformersSettings(EngineSettings):
    """The built-in engine, which runs the model in this process."""

    needs_model: ClassVar[bool] = True

    def open(self, inputs: EngineInputs) -> Engine:
        """Choose the fastest engine that the model fits."""
        from rollwise.engines.transformers import make_built_in_engine

        return make_built_in_engine(
            inputs.model,
            inputs.tokenizer,
            inputs.max_new_tokens,
            inputs.temperature,
            inputs.batch_size,
        )


@dataclass(frozen=True)
class VLLMSettings(VLLMOptions, EngineSettings):
    """vLLM, in its own process."""

    drawing_defaults: ClassVar[Mapping[str, Any]] = {"gpu_memory_utilization": 0.9}

    def open(self, inputs: EngineInputs) -> Engine:
        """Start vLLM with the weights at `inputs.path`."""
        from rollwise.engines.ends import end_tokens
        from rollwise.engines.vllm import VLLMEngine

        return VLLMEngine(
            inputs.path,
            inputs.tokenizer,
            end_tokens(inputs.model.generation_config, inputs.tokenizer),
            inputs.context,
            inputs.max_new_tokens,
            inputs.temperature,
            inputs.batch_size,
            self,
        )


@dataclass(frozen=True)
class ServerSettings(ServerOptions, EngineSettings):
    """A running server with an OpenAI-compatible API; for evaluation and preparation only."""

    can_train: ClassVar[bool] = False

    def open(self, inputs: EngineInputs) -> Engine:
        """Connect to the server."""
        from rollwise.engines.server import ServerEngine

        return ServerEngine(
            self, inputs.tokenizer, inputs.max_new_tokens, inputs.temperature, inputs.batch_size
        )
