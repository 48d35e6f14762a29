"""The engines that `engine.type` names: the settings of each, and how it is opened.

Light to import: an engine's libraries are imported when it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from rollwise.engines.engine import Engine
from rollwise.sampling.checks import above_zero, at_least, setting


def context_of(config: Any) -> int | None:
    """Return the most tokens that a model takes, by its configuration; None if it says nothing.

    With LongRoPE (Phi-3 128k), one sequence beyond the original context changes the positions of
    all that are computed with it: the original context is the most.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope" and "original_max_position_embeddings" in rope:
        return int(rope["original_max_position_embeddings"])
    return getattr(config, "max_position_embeddings", None)


def end_tokens(generation: Any, tokenizer: Any) -> set[int]:
    """Collect the tokens that end a response, by a generation configuration and the tokenizer.

    Raises:
        ValueError: There are none.
    """
    configured = generation.eos_token_id if generation else None
    own = configured if isinstance(configured, list) else [configured]
    found = {token for token in [*own, tokenizer.eos_token_id] if token is not None}
    if not found:
        raise ValueError(
            "neither the model's generation_config nor its tokenizer has an end-of-sequence token"
        )
    return found


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
        temperature: Sampling temperature; above 0.
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
        return min(longest, context_of(self.model.config) or longest)


class EngineSettings:
    """Base class of the engines that `engine.type` can name.

    A subclass is a frozen dataclass, whose fields are the engine's settings. Write `open`.

    Attributes:
        needs_model: The engine draws with the model in this process, which is loaded for it. If
            not, it gets its weights through `Engine.load_weights`, adapters merged in.
        can_train: The engine takes the learner's weights.
        drawing_defaults: Setting -> its default where nothing is trained beside the engine. It
            applies to the engines that come with rollwise, not to plug-ins.
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
        from rollwise.engines.transformers import TransformersEngine

        return TransformersEngine(
            inputs.model,
            inputs.tokenizer,
            inputs.max_new_tokens,
            inputs.temperature,
            inputs.batch_size,
        )


@dataclass(frozen=True)
class VLLMSettings(EngineSettings):
    """vLLM, in its own process."""

    drawing_defaults: ClassVar[Mapping[str, Any]] = {"gpu_memory_utilization": 0.9}

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "Precision of its weights; `auto` leaves the choice to vLLM."
    )
    gpu_memory_utilization: float = setting(
        0.4, "Share of the device's memory for its weights and cache; the learner needs the rest."
    )
    tensor_parallel_size: int = setting(1, "Devices that its weights are split over.")
    enforce_eager: bool = setting(False, "Skip compilation: vLLM starts sooner, draws slower.")
    sleep_level: int = setting(
        0,
        "What vLLM does with its memory while the learner learns: 0 keeps it, 1 moves its weights "
        "into the machine's memory and drops its cache, 2 drops both. It gets it back before the "
        "next draw. Needs a GPU.",
    )
    draw_timeout: float = setting(
        600.0,
        "Seconds for one response; one that takes longer is drawn again, a few times at most.",
    )
    restarts: int = setting(3, "How many times per run its process is restarted if it dies.")

    def __post_init__(self) -> None:
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                "gpu_memory_utilization must be above 0, at most 1, got "
                f"{self.gpu_memory_utilization}"
            )
        at_least("tensor_parallel_size", self.tensor_parallel_size, 1)
        if self.sleep_level not in (0, 1, 2):
            raise ValueError(f"sleep_level must be 0, 1 or 2, got {self.sleep_level}")
        above_zero("draw_timeout", self.draw_timeout)
        at_least("restarts", self.restarts, 0)

    def open(self, inputs: EngineInputs) -> Engine:
        """Start vLLM with the weights at `inputs.path`."""
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
class ServerSettings(EngineSettings):
    """A running server with an OpenAI-compatible API; for evaluation and preparation only."""

    can_train: ClassVar[bool] = False

    base_url: str = setting("", "Its address up to `/v1`, such as `http://localhost:8000/v1`.")
    model: str = setting("", "The server's name for the model.")
    api_key_env: str = setting(
        "", "The environment variable that holds the key; empty if the server needs none."
    )
    extensions: bool = setting(
        True,
        "Send options of vLLM, SGLang and llama.cpp beyond OpenAI's API, to get token ids back and "
        "to sample without top-k, min-p and penalties; `false` for a server that refuses them.",
    )
    draw_timeout: float = setting(
        600.0,
        "Seconds for one response, retries and their waits included; one that takes longer is "
        "drawn again, a few times at most.",
    )
    retries: int = setting(
        6,
        "How often a request is retried after a lost connection, too many requests or a server "
        "error, with growing waits or those that the server asks for.",
    )

    def __post_init__(self) -> None:
        above_zero("draw_timeout", self.draw_timeout)
        at_least("retries", self.retries, 0)
        parts = urlsplit(self.base_url)
        if self.base_url and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError("base_url must begin with http:// or https:// and name a host")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "base_url must hold no password, key or query; put the key into an environment "
                "variable, and its name into api_key_env"
            )

    def open(self, inputs: EngineInputs) -> Engine:
        from rollwise.engines.server import ServerEngine

        return ServerEngine(
            self, inputs.tokenizer, inputs.max_new_tokens, inputs.temperature, inputs.batch_size
        )
