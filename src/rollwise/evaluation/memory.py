"""What training a model takes of one GPU's memory, before anything is loaded.

The figures follow from what the learner and the engines hold, see `plan_memory`; 1 GB is 10⁹ bytes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rollwise.config import MICRO_BATCH_TOKENS, TrainConfig
from rollwise.errors import ConfigError

CHUNK_LOGITS = 2**26
"""Logits that the learner holds at a time (`rollwise.training.logprobs`)."""

GATED = frozenset({"granite", "llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"})
"""Architectures whose size is known here: attention and a gated feed-forward part in each layer."""

CONTEXT = 0.8e9
"""Bytes that the driver and the libraries' workspaces take on a GPU; an assumption."""

ASLEEP = 1.5e9
"""Bytes that vLLM keeps while its memory is lent, for the driver and CUDA graphs; an assumption."""

STATE_BYTES = {
    "adamw": 8.0,
    "adamw_8bit": 2 + 2 * 4 / 256,
    "paged_adamw_8bit": 2 + 2 * 4 / 256,
    "paged_adamw_32bit": 8.0,
}
"""Bytes of an optimizer's state for a trained weight: two moments, in 8 bits with a scale for every
256 values. Paged ones are in the machine's memory where a GPU has no room for them."""

LOGIT_BYTES, ENTROPY_BYTES = 12, 8
"""Bytes of a logit while its gradient is made: its log π and two gradients in float32; and what an
entropy bonus adds."""


@dataclass(frozen=True)
class ModelShape:
    """The size of a causal language model.

    Attributes:
        vocabulary: Words.
        hidden: Size of a hidden state.
        layers: Number of layers.
        queries: Size of all queries of a token, all heads together.
        keys: Size of all its keys, or values.
        inner: Size of the feed-forward part.
        tied: Whether the head is the embedding.
        query_bias: Whether queries, keys and values have a bias.
        query_norm: Whether queries and keys are normalised.
    """

    vocabulary: int
    hidden: int
    layers: int
    queries: int
    keys: int
    inner: int
    tied: bool
    query_bias: bool = False
    query_norm: bool = False

    @classmethod
    def of_config(cls, config: Mapping[str, Any], name: str) -> Self:
        """Read a model's `config.json`.

        Raises:
            ConfigError: Its architecture is not known here, or an entry is missing; says `name`.
        """
        kind = config.get("model_type")
        if kind not in GATED:
            known = ", ".join(sorted(GATED))
            raise ConfigError(
                f"{name}: the memory of `model_type` {kind!r} is not known; known are {known}"
            )
        try:
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            size = int(config.get("head_dim") or hidden // heads)
            return cls(
                vocabulary=int(config["vocab_size"]),
                hidden=hidden,
                layers=int(config["num_hidden_layers"]),
                queries=heads * size,
                keys=int(config.get("num_key_value_heads") or heads) * size,
                inner=int(config["intermediate_size"]),
                tied=bool(config.get("tie_word_embeddings", kind == "smollm3")),
                query_bias=kind == "qwen2",
                query_norm=kind in ("qwen3", "olmo2"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{name}: the entry {error} of a model's configuration is missing or no number"
            ) from None

    @property
    def linear(self) -> int:
        """Weights of the linear layers, without the head."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def parameters(self) -> int:
        """All weights."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        biases = self.layers * (self.queries + 2 * self.keys) if self.query_bias else 0
        return self.linear + embeddings + biases + self.hidden * (2 * self.layers + 1)

    def adapters(self, rank: int) -> int:
        """Weights of adapters of that rank at all linear layers but the head."""
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        return self.layers * rank * (attention + 3 * (self.hidden + self.inner))


def read_shape(path: Path) -> ModelShape:
    """Read the size of a model from its folder, or from its `config.json`.

    Raises:
        ConfigError: The file is missing, no JSON, or of an architecture that is not known here.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read as a model's config.json: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: a model's config.json is a table, this is none")
    return ModelShape.of_config(config, str(file))


@dataclass(frozen=True)
class MemoryPlan:
    """What a run takes of a device's memory, in bytes.

    Attributes:
        held: By name, what is held all the time: the learner's weights, the optimizer's state, and
            of the engine what it does not lend while the learner learns.
        learning: By name, what a forward and backward pass takes besides.
        update: By name, what an optimizer's step, or handing over weights, takes besides.
        drawing: By name, what the engine takes besides while it draws.
    """

    held: dict[str, float]
    learning: dict[str, float]
    update: dict[str, float]
    drawing: dict[str, float] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """The most that is taken at a time."""
        phases = (self.learning, self.update, self.drawing)
        return sum(self.held.values()) + max(sum(phase.values()) for phase in phases)


def plan_memory(
    shape: ModelShape, config: TrainConfig, gpu_bytes: float | None = None
) -> MemoryPlan:
    """Add up what a run takes of a GPU, or of a CPU's memory.

    The learner's weights are in float32 (frozen ones as `model.frozen_dtype` says), the optimizer's
    state takes `STATE_BYTES` a trained weight and its gradient 4. On a GPU the linear layers'
    weights are rounded to bfloat16 for a pass (2 bytes), and torch's AdamW makes one temporary of
    all trained weights (4 bytes). Activations are what the layers keep for the backward pass,
    counted by the tensors of each layer, and once more for the layer that is on its way back; with
    gradient checkpointing a layer keeps its input alone.

    Args:
        shape: The model's.
        config: The run's settings.
        gpu_bytes: The GPU's memory; None for a CPU, whose arithmetic is in float32, and whose
            engine shares the learner's weights.
    """
    on_gpu = gpu_bytes is not None
    model, learner, engine = config.model, config.learner, config.engine
    settings = engine.make()
    rank = model.lora_rank
    trained = shape.adapters(rank) if rank else shape.parameters
    frozen = shape.parameters if rank else 0
    own = trained * 4 + frozen * (2 if model.frozen_dtype == "bfloat16" else 4)
    longest = config.data.max_prompt_tokens + engine.max_new_tokens
    tokens = max(learner.micro_batch_tokens or (MICRO_BATCH_TOKENS if on_gpu else 1024), longest)
    held: dict[str, float] = {"weights": own}
    if not (on_gpu and learner.optimizer.startswith("paged")):
        held["optimizer"] = STATE_BYTES[learner.optimizer] * trained
    key_value = 4 * shape.layers * shape.keys  # bytes a token, in bfloat16
    drawing: dict[str, float] = {}
    if engine.type == "vllm" and gpu_bytes is not None:
        lends = settings.sleep_level > 0
        if lends:
            held["engine, asleep"] = ASLEEP
        own_share = float(settings.gpu_memory_utilization) * gpu_bytes - (ASLEEP if lends else 0)
        (drawing if lends else held)["engine: weights, cache"] = own_share
    else:
        if on_gpu:
            held["engine: weights"] = 2 * shape.parameters
        cache = engine.batch_size * longest * key_value
        lends = on_gpu and not config.steps_ahead and not config.step.carry_over
        (drawing if lends else held)["engine: cache"] = cache if on_gpu else 2 * cache
    if on_gpu:
        held["driver"] = CONTEXT
    inside, entering = _activations(shape, on_gpu)
    kept = entering if model.gradient_checkpointing else inside
    share = engine.max_new_tokens / longest  # only responses have logits
    chunk = min(tokens * share, max(1, CHUNK_LOGITS // shape.vocabulary))
    logit = LOGIT_BYTES + (ENTROPY_BYTES if learner.entropy_coefficient else 0)
    learning: dict[str, float] = {
        "gradients": 4 * trained,
        "activations": tokens * (kept * shape.layers + inside + 3 * 4 * shape.hidden),
        "logits": chunk * shape.vocabulary * logit,
    }
    if not rank:
        learning["gradient of the head"] = 4 * shape.vocabulary * shape.hidden
    if on_gpu and not (rank and model.frozen_dtype == "bfloat16"):
        learning["weights in bfloat16"] = 2 * (shape.linear + shape.vocabulary * shape.hidden)
    update: dict[str, float] = {"gradients": 4 * trained}
    if on_gpu and learner.optimizer == "adamw":
        update["optimizer's step"] = 4 * trained
    return MemoryPlan(held, learning, update, drawing)


def _activations(shape: ModelShape, on_gpu: bool) -> tuple[float, float]:
    """Return the bytes that a layer keeps of a token, all of them and its input alone.

    Each of two norms keeps its input and the normalised one; attention its queries, keys, values
    and output; the feed-forward part both inner products, the activation and their product. In
    autocast norms are in float32, and each of the five linear layers behind them keeps its own
    rounded copy of their output. On a CPU these layers share one, and attention's output is kept
    once more.
    """
    attention, inner = 2 * shape.queries + 2 * shape.keys, 4 * shape.inner
    normalised = shape.queries + shape.keys if shape.query_norm else 0
    if on_gpu:
        norms, rounded = 4 * 2 * 2 * shape.hidden, 2 * 5 * shape.hidden
        inside = norms + rounded + 2 * (attention + inner) + (4 + 2) * normalised
        return inside, 4 * shape.hidden
    kept = 6 * shape.hidden + attention + shape.queries + inner + 2 * normalised
    return 4 * kept, 4 * shape.hidden


def changes_that_fit(
    shape: ModelShape, config: TrainConfig, gpu_bytes: float
) -> tuple[list[str], MemoryPlan]:
    """Say what to change, one setting after another, until a run fits.

    The settings that cost nothing but time come first, then the engine's share, then training
    adapters instead of all weights.

    Returns:
        The changes, such as `model.gradient_checkpointing = true`, and the plan with them; if it
        still does not fit, there is nothing more to change.
    """
    changes: list[str] = []
    plan = plan_memory(shape, config, gpu_bytes)
    for name, changed in _candidates(shape, config, gpu_bytes):
        if plan.peak <= gpu_bytes:
            break
        found = plan_memory(shape, changed, gpu_bytes)
        if found.peak < plan.peak:
            changes.append(name)
            plan = found
    return changes, plan


def _candidates(
    shape: ModelShape, config: TrainConfig, gpu_bytes: float
) -> Iterator[tuple[str, TrainConfig]]:
    """Yield changes, each on top of those before it."""

    def change(section: str, **values: Any) -> TrainConfig:
        nonlocal config
        own = getattr(config, section).model_copy(update=values)
        config = config.model_copy(update={section: own})
        return config

    if not config.model.gradient_checkpointing:
        yield "model.gradient_checkpointing = true", change("model", gradient_checkpointing=True)
    longest = config.data.max_prompt_tokens + config.engine.max_new_tokens
    if (config.learner.micro_batch_tokens or MICRO_BATCH_TOKENS) > longest:
        yield (
            f"learner.micro_batch_tokens = {longest}",
            change("learner", micro_batch_tokens=longest),
        )
    if config.learner.optimizer == "adamw" and not config.model.lora_rank:
        changed = change("learner", optimizer="adamw_8bit")
        yield 'learner.optimizer = "adamw_8bit"', changed
    if config.engine.type == "vllm":
        if not config.steps_ahead and not config.engine.make().sleep_level:
            yield "engine.sleep_level = 2", change("engine", sleep_level=2)
        key_value = 4 * shape.layers * shape.keys * longest
        least = 2 * shape.parameters + 8 * key_value + CONTEXT  # for eight long responses
        share = min(1.0, -(-least // (gpu_bytes / 100)) / 100)
        if share < config.engine.make().gpu_memory_utilization:
            yield (
                f"engine.gpu_memory_utilization = {share:.2f}",
                change("engine", gpu_memory_utilization=share),
            )
    else:
        yield "engine.batch_size = 16", change("engine", batch_size=16)
    if not config.model.lora_rank:
        yield "model.lora_rank = 32", change("model", lora_rank=32)
    if config.model.frozen_dtype != "bfloat16":
        yield 'model.frozen_dtype = "bfloat16"', change("model", frozen_dtype="bfloat16")
