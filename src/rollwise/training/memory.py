"""The memory that a run will need, found by learning from tensors without data."""

import logging
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import AutoModelForCausalLM

from rollwise.config import TrainConfig
from rollwise.config.learning import MICRO_BATCH_TOKENS, LearnerSettings
from rollwise.engines.continuous import KEPT_TOKENS
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.tokens import sample
from rollwise.errors import ModelError, one_line
from rollwise.models.loading import add_adapters, recompute
from rollwise.step.response import Example, Response
from rollwise.training.forward import Forward, recomputing

log = logging.getLogger(__name__)

LIBRARIES = 600_000_000
"""Bytes that Python and its libraries take in the host's memory, and a GPU's driver on the GPU."""

SPARE_CACHE = 1.2
"""Bytes that the engine allocates for keys and values over those in use, at most."""

SIZES = [MICRO_BATCH_TOKENS >> halvings for halvings in range(5)]
"""Tokens of a micro-batch on a GPU, of which the first that fits is the default."""

FIX = """set model.gradient_checkpointing = true
lower learner.micro_batch_tokens
lower engine.batch_size; with vLLM set engine.sleep_level = 2, and a lower
engine.gpu_memory_utilization
set model.lora_rank = 32"""
"""What to change first where memory is not enough."""

SAFE = 0.9
"""The share of the memory that defaults may need: predictions are right within a tenth."""


class Unpredictable(ModelError):
    """A model whose code does not run without data."""


@dataclass(frozen=True)
class Memory:
    """What a run needs, in bytes by part.

    Attributes:
        held: All the time.
        learning: Beside that in an update.
        drawing: Beside that while responses are drawn, if all in flight are as long as they can be.
    """

    held: Mapping[str, int]
    learning: Mapping[str, int]
    drawing: Mapping[str, int]

    @property
    def peak(self) -> int:
        """The most bytes at one time."""
        return sum(self.held.values()) + max(map(_total, (self.learning, self.drawing)))

    def describe(self) -> str:
        """Say what is needed, and by what, in GB."""
        parts = [
            ", ".join(f"{name} {size / 1e9:.1f}" for name, size in part.items() if size >= 5e7)
            for part in (self.held, self.learning, self.drawing)
        ]
        held, learning, drawing = (part or "little" for part in parts)
        return f"{self.peak / 1e9:.1f} GB: {held}; learning: {learning}; drawing: {drawing}"


def memory_of(
    config: TrainConfig,
    model_config: Any,
    on_gpu: bool,
    threads: int = 1,
    total: int = 0,
    halved: bool = True,
) -> Memory:
    """Predict what the local backend and its engine need.

    Args:
        config: The settings of the run.
        model_config: The configuration of the model, as `transformers` reads it.
        on_gpu: Whether the model is on a GPU.
        threads: Micro-batches that a CPU runs at once.
        total: The GPU's memory in bytes, of which vLLM takes its share.
        halved: Whether a GPU's arithmetic is in bfloat16.

    Raises:
        Unpredictable: The model's code does not run without data.
    """
    halved = halved and on_gpu
    engine, fake = config.engine, FakeTensorMode(allow_non_fake_inputs=True)
    longest = config.data.max_prompt_tokens + engine.max_new_tokens
    try:
        model = _without_data(config, model_config)
        weights = _size(model.parameters())
        gradients = _size(each for each in model.parameters() if each.requires_grad)
        every = sum(each.numel() for each in model.parameters())
        with fake, LiveTensors() as live:
            _to_cpu(model)
            recompute(model, config.model, on_gpu)
            tokens = config.learner.tokens_at_a_time(on_gpu)
            with torch.autocast("cpu", torch.bfloat16, enabled=halved), live.peak_of() as learning:
                _learn(model, config, longest, tokens)
            with live.peak_of() as sampling:
                width = model.config.get_text_config().vocab_size
                sample(torch.empty(engine.batch_size, width), torch.empty(engine.batch_size))
    except Exception as error:  # a model's code may do anything
        why = one_line(error)
        raise Unpredictable(f"the memory of this model cannot be predicted ({why})") from error
    work = learning.pop() - gradients  # the sum of all micro-batches' is counted by itself
    held = {"libraries": LIBRARIES, "weights": weights, "optimizer": 2 * gradients}
    drawing = {}
    if engine.kind.needs_model:
        held["engine's copy"] = 2 * every if halved else 0
        number = 2 if halved else 4
        each = _cached_numbers(model_config) * number
        kept = max(KEPT_TOKENS, engine.batch_size * config.data.max_prompt_tokens)
        drawing = {
            "keys and values": int(SPARE_CACHE * engine.batch_size * longest * each),
            "prompts": kept * each,
            "sampling": sampling.pop(),
        }
    elif on_gpu and isinstance(vllm := engine.make(), VLLMSettings):
        asleep = vllm.sleep_level > 0
        (drawing if asleep else held)["vLLM"] = int(vllm.gpu_memory_utilization * total)
    several = {"gradients": gradients, "activations and logits": work}
    if threads > 1:  # each has its own gradient, and another waits to be added
        several = {
            "gradients": (threads + 2) * gradients,
            "activations and logits": threads * (work - gradients),
        }
    return Memory(held, several, drawing)


def fit_to(
    config: TrainConfig, model_config: Any, total: int, halved: bool = True
) -> tuple[TrainConfig, Memory]:
    """Choose the largest micro-batches with which a run fits on a GPU of `total` bytes.

    Returns:
        The settings, unchanged if they set `learner.micro_batch_tokens`, and what they need.

    Raises:
        Unpredictable: The model's code does not run without data.
    """
    given = config.learner.micro_batch_tokens
    for tokens in [given] if given else SIZES:
        fitted = replace(config, learner=replace(config.learner, micro_batch_tokens=tokens))
        need = memory_of(fitted, model_config, True, total=total, halved=halved)
        if need.peak <= SAFE * total:
            break
    return fitted, need


def fitted_learner(
    config: TrainConfig, model_config: Any, total: int, halved: bool = True
) -> LearnerSettings:
    """Return the learner's settings as `fit_to` chooses them for a GPU, and log what they need.

    Raises:
        ModelError: The run does not fit, by more than predictions can be wrong.
    """
    try:
        fitted, need = fit_to(config, model_config, total, halved)
    except Unpredictable as error:
        log.warning("%s", error)
        return config.learner
    if need.peak > total / SAFE:
        raise ModelError(
            f"the GPU has {total / 1e9:.1f} GB, and this run needs {need.describe()}\n{FIX}"
        )
    tokens = fitted.learner.micro_batch_tokens
    log.info("micro-batches of %s tokens; this run needs %s", tokens, need.describe())
    return fitted.learner


def _without_data(config: TrainConfig, model_config: Any) -> Any:
    """Make the model as it is loaded to be trained, of tensors on the meta device."""
    settings = config.model
    frozen = settings.frozen_dtype if settings.lora_rank else "float32"
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(model_config, dtype=getattr(torch, frozen))
        if settings.lora_rank:
            model = add_adapters(model, settings)
    return model.eval()


def _to_cpu(model: Any) -> None:
    """Replace tensors on the meta device by ones on the CPU; shared ones stay shared."""
    own: dict[int, Tensor] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, old in tensors.items():
                if old is not None and id(old) not in own:
                    new = torch.empty_like(old, device="cpu")
                    if isinstance(old, torch.nn.Parameter):
                        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
                    own[id(old)] = new
                tensors[name] = own.get(id(old))


def _learn(model: Any, config: TrainConfig, longest: int, tokens: int) -> None:
    """Compute the gradient of one micro-batch, as a second one that is added to another."""
    drawn, count = config.engine.max_new_tokens, max(1, tokens // longest)
    example = Example([0] * (longest - drawn), Response([0] * drawn), 1.0)
    forward = Forward(model, config.engine.temperature, config.learner.packed, checked=False)
    for weights in forward.model.parameters():
        weights.grad = torch.zeros_like(weights) if weights.requires_grad else None
    with recomputing(forward.model):
        logprobs, entropy = forward.run([example] * count, config.learner.entropy_coefficient != 0)
        (logprobs + entropy).sum().backward()


def _cached_numbers(model_config: Any) -> int:
    """Return how many numbers are kept of each token: keys and values of all layers."""
    text = model_config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * size)


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def _total(parts: Mapping[str, int]) -> int:
    return sum(parts.values())


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive, with or without data."""

    def __init__(self) -> None:
        super().__init__()
        self._now = self._most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count what it makes."""
        made = function(*args, **(kwargs or {}))
        for each in tree_iter(made):
            if isinstance(each, Tensor):
                self.count(each)
        return made

    def count(self, tensor: Tensor) -> int:
        """Count a tensor's memory, once; returns the bytes that it adds."""
        storage = tensor.untyped_storage()
        known, size = storage._cdata, storage.nbytes()
        if known in self._known:
            return 0
        self._known.add(known)
        self._now += size
        self._most = max(self._most, self._now)
        weakref.finalize(storage, self._forget, known, size)
        return size

    def _forget(self, known: int, size: int) -> None:
        self._known.discard(known)
        self._now -= size

    @contextmanager
    def peak_of(self) -> Iterator[list[int]]:
        """Give, once the block has ended, the most bytes beside those from before it."""
        before, found = self._now, list[int]()
        self._most = before
        yield found
        found.append(self._most - before)
