"""The engines that `engine.type` names: the settings of each, and how it is opened.

Light to import: an engine's libraries are imported when it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Gt, Le

from rollwise.engines.ends import end_tokens, known_ends
from rollwise.engines.engine import Engine
from rollwise.sampling.checks import Above0, Checked, Count, Whole


def context_of(config: Any) -> int | None:
    """Return the most tokens that a model takes, by its configuration; None if it says nothing.

    With LongRoPE (Phi-3 128k), one sequence beyond the original context changes the positions of
    all that are computed with it: the original context is the most.
    """
    if hasattr(config, "get_text_config"):  # of a model that takes more than texts
        config = config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope" and "original_max_position_embeddings" in rope:
        return int(rope["original_max_position_embeddings"])
    most = getattr(config, "max_position_embeddings", None)
    return most if most is not None and most > 0 else None  # XLNet says -1


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


class EngineSettings(Checked):
    """Base class of the engines that `engine.type` can name.

    A subclass is a frozen dataclass, whose fields are the engine's settings. Write `open`.

    Attributes:
        needs_model: The engine draws with the model in this process, which is loaded for it. If
            not, it gets its weights through `Engine.load_weights`, adapters merged in unless it
            `takes_adapters`.
        can_train: The engine takes the learner's weights; if not, `train` refuses it.
        drawing_defaults: Setting -> its default where nothing is trained beside the engine. It
            applies to the engines that come with rollwise, not to plug-ins.
    """

    needs_model: ClassVar[bool] = False
    can_train: ClassVar[bool] = True
    drawing_defaults: ClassVar[Mapping[str, Any]] = {}

    @property
    def takes_adapters(self) -> bool:
        """Whether `load_weights` takes adapters alone, under the names that peft gives them.

        `EngineInputs.model` then has their configuration.
        """
        return False

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

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of vLLM's weights; `auto` leaves the choice to vLLM."""
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)] = 0.4
    """Share of GPU memory for vLLM's weights and cache; the learner needs the rest."""
    tensor_parallel_size: Count = 1
    """Devices over which vLLM splits the weights."""
    enforce_eager: bool = False
    """Skip compilation: vLLM starts sooner and draws slower."""
    sleep_level: Literal[0, 1, 2] = 0
    """What vLLM does with GPU memory while the learner learns: 0 keeps it, 1 moves the weights to
    the host's memory and drops the cache, 2 drops both. Memory is taken back before the next draw.
    Needs a GPU."""
    merge_adapters: bool = False
    """Merge LoRA adapters into the weights for vLLM, for models whose adapters it does not take.
    Rounding to vLLM's precision then loses small changes: most of them in bfloat16."""
    draw_timeout: Above0 = 600.0
    """Seconds for one response; one that takes longer is retried a few times."""
    restarts: Whole = 3
    """Maximum restarts of vLLM's process per run, if it dies."""

    @property
    def takes_adapters(self) -> bool:
        """See base class."""
        return not self.merge_adapters

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
            getattr(inputs.model, "peft_config", {}).get("default"),
        )


@dataclass(frozen=True)
class ServerSettings(EngineSettings):
    """A running server with an OpenAI-compatible API; for evaluation and preparation only."""

    can_train: ClassVar[bool] = False

    base_url: str = ""
    """Address up to `/v1`, such as `http://localhost:8000/v1`."""
    model: str = ""
    """The server's name for the model."""
    api_key_env: str = ""
    """Environment variable that holds the API key; empty if none is needed."""
    extensions: bool = True
    """Send options of vLLM, SGLang and llama.cpp beyond OpenAI's API, which return token ids and
    turn off top-k, min-p and penalties; `false` for a server that refuses them."""
    draw_timeout: Above0 = 600.0
    """Seconds for one response, including retries of its requests; one that takes longer is drawn
    again a few times."""
    retries: Whole = 6
    """Maximum retries of a request after a lost connection, too many requests or a server error,
    with growing waits or those that the server asks for."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
            self,
            inputs.tokenizer,
            inputs.max_new_tokens,
            inputs.temperature,
            inputs.batch_size,
            known_ends(inputs.model.generation_config, inputs.tokenizer),
        )
