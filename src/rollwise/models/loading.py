"""Load the model that is trained, and its tokenizer."""

import copy
import functools
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as transformers_logging

from rollwise.config import BUILT_IN_NAMES, ModelSettings
from rollwise.config.model import looks_local
from rollwise.errors import ModelError, is_out_of_memory, one_line
from rollwise.machine import usable_cores

_SAID_BY_FILE = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""A tokenizer that names one of these as its class is defined by its `tokenizer.json`."""

NEEDED = "a folder needs config.json, safetensors weights and tokenizer files"


def pick_device(name: str) -> torch.device:
    """Resolve `auto` to a GPU if there is one; a ModelError if a device is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        cause = str(error).splitlines()[0][:200]
        raise ModelError(f"model.device: there is no device {name!r} here ({cause})") from None
    return device


def describe_device(name: str) -> str:
    """Name the GPU that `model.device` stands for, or the processor with its usable cores."""
    device = pick_device(name)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type.upper()} ({usable_cores()} cores)"


def load_model(
    settings: ModelSettings, checkpoint: Path | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model to train, in float32 or, under adapters, `frozen_dtype`; and its tokenizer.

    Weights come from safetensors only, and no code that a model brings along is run.

    Args:
        settings: Which model, where, and whether adapters are trained instead of it.
        checkpoint: A checkpoint's model folder, whose weights (or adapters) are taken instead.

    Raises:
        ModelError: What is missing or wrong, and what to do.
    """
    transformers_logging.disable_progress_bar()
    if settings.cpu_threads:
        torch.set_num_threads(settings.cpu_threads)
    path = model_path(settings.path)
    base = path if checkpoint is None or settings.lora_rank else str(checkpoint)
    tokenizer = load_tokenizer(path)
    frozen = settings.frozen_dtype if settings.lora_rank else "float32"
    model = _load_weights(base, getattr(torch, frozen))
    check_tokens(base, model.config, tokenizer)
    model.to(pick_device(settings.device))
    if settings.lora_rank:
        model = add_adapters(model, settings, checkpoint)
    recompute(model, settings, model.device.type == "cuda")
    return model.eval(), tokenizer


def recompute(model: Any, settings: ModelSettings, on_gpu: bool) -> None:
    """Let a model recompute activations, if it is set, or if that is the default and it can."""
    by_default = settings.gradient_checkpointing is None and on_gpu
    if settings.gradient_checkpointing or (by_default and model.supports_gradient_checkpointing):
        older = model.gradient_checkpointing_enable  # of earlier releases
        getattr(model, "activation_checkpointing_enable", older)()


def model_path(name: str) -> str:
    """Resolve the built-in model's name to its folder; a folder or a hub name stays as it is."""
    if name not in BUILT_IN_NAMES:
        return str(Path(name).expanduser()) if name.startswith("~") else name
    with as_file(files("rollwise") / "models" / name) as folder:
        return str(folder)


@torch.no_grad()
def merged_weights(model: PreTrainedModel) -> Mapping[str, torch.Tensor]:
    """Return the weights under the names in the model's own files, adapters merged in.

    The model itself stays as it is. Merged weights are copies in the host's memory, in the
    precision of the weights under the adapters; the others are the model's own tensors.
    """
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    weights = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in base.state_dict().items()
        if ".lora_" not in name
    }
    for name, module in base.named_modules():
        if hasattr(module, "get_delta_weight"):
            weight = weights[f"{name}.weight"]
            change = sum(module.get_delta_weight(adapter) for adapter in module.active_adapters)
            weights[f"{name}.weight"] = (weight + change).to(weight.dtype).cpu()
    found: dict[str, torch.Tensor] = revert_weight_conversion(base, weights)
    return found


def adapter_weights(model: PreTrainedModel) -> Mapping[str, torch.Tensor]:
    """Return the adapters' weights alone, under the names in the files that `peft` writes."""
    from peft import get_peft_model_state_dict

    found: dict[str, torch.Tensor] = get_peft_model_state_dict(model, save_embedding_layers=False)
    return found


def for_sampling(model: PreTrainedModel) -> PreTrainedModel:
    """Return what responses are drawn from: a copy in bfloat16, or `model` itself."""
    return copy_in_bfloat16(model) if computes_in_bfloat16(model.device) else model


def computes_in_bfloat16(device: torch.device) -> bool:
    """Return whether arithmetic is in bfloat16: on GPUs from Ampere on; others only emulate it."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def copy_in_bfloat16(model: PreTrainedModel) -> PreTrainedModel:
    """Copy a model, its weights rounded to bfloat16 one after another; see `in_bfloat16`."""
    rounded: dict[int, Any] = {
        id(each): torch.nn.Parameter(each.detach().to(torch.bfloat16), requires_grad=False)
        for each in model.parameters()
    }
    return copy.deepcopy(model, rounded)


def in_bfloat16(model: PreTrainedModel) -> PreTrainedModel:
    """Round a model's weights to bfloat16, in place.

    Its buffers keep their precision: rounding the frequencies of rotary embeddings would change
    distant positions.
    """
    model.requires_grad_(False)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


def _load_weights(path: str, dtype: torch.dtype) -> PreTrainedModel:
    """Load a model without adapters; refuse weights that are missing or not finite."""
    model: PreTrainedModel
    model, loaded = from_pretrained(
        AutoModelForCausalLM, path, dtype=dtype, use_safetensors=True, output_loading_info=True
    )
    if missing := sorted(loaded["missing_keys"]):
        raise ModelError(
            f"model.path: the weights in {path} lack {len(missing)} tensors, such as {missing[0]}"
        )
    for name, weights in model.named_parameters():
        if not weights.sum().isfinite() and not weights.isfinite().all():
            raise ModelError(f"model.path: the weights in {path} hold NaN or infinity: {name}")
    return model


def check_tokens(path: str, config: Any, tokenizer: Any) -> None:
    """Refuse a model that lacks tokens of its tokenizer."""
    size = config.get_text_config().vocab_size
    if (last := max(tokenizer.get_vocab().values())) >= size:
        raise ModelError(
            f"model.path: `vocab_size` in {path}/config.json is {size}, fewer than the {last + 1} "
            "tokens of the tokenizer"
        )


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model in a folder or on the hub; a ModelError if there is none."""
    tokenizer: PreTrainedTokenizerBase = from_pretrained(AutoTokenizer, path)
    settings = get_tokenizer_config(path, local_files_only=not _may_ask_hub(path))
    if settings.get("tokenizer_class") in _SAID_BY_FILE:
        # For some models (Qwen2 is one) transformers 5 loads the model's usual one instead.
        tokenizer = from_pretrained(PreTrainedTokenizerFast, path)
    # Where there are no files, transformers makes a tokenizer of special tokens alone.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ModelError(
            f"model.path: {path} has no tokenizer; save one there with "
            "tokenizer.save_pretrained(folder)"
        )
    return tokenizer


def from_pretrained(kind: Any, path: str, **options: Any) -> Any:
    """Load a part of a model, without any code of its own; a ModelError if that fails."""
    what = "tokenizer" if "Tokenizer" in kind.__name__ else "model"
    is_local, asks = looks_local(path), _may_ask_hub(path)
    if is_local and not Path(path).expanduser().is_dir():
        raise ModelError(f"model.path: there is no folder {path}")
    try:
        return kind.from_pretrained(
            path, trust_remote_code=False, local_files_only=not asks, **options
        )
    except Exception as error:  # its files may hold anything, and the library may raise anything
        if is_out_of_memory(error):
            raise
        place, hint = "on the hub under the name", "check the name, and that you have access"
        if is_local:
            place, hint = "in the folder", NEEDED
        elif not asks:
            place = "from the hub's cache under the name"
            hint = "the hub cannot be reached from here: give a local folder"
        raise ModelError(
            f"model.path: no {what} could be loaded {place} {path}; {hint} "
            f"({one_line(error)[:300]})"
        ) from error


def _may_ask_hub(path: str) -> bool:
    """Return whether a name may be looked up on the hub; else what is missing is said at once."""
    return not looks_local(path) and _reaches_hub()


@functools.cache
def _reaches_hub() -> bool:
    """Ask once; the hub's own library would retry for half a minute for each file."""
    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=10)
    except Exception:  # of whichever client that library has, or because HF_HUB_OFFLINE forbids it
        return False
    return True


def add_adapters(model: Any, settings: ModelSettings, checkpoint: Path | None = None) -> Any:
    """Add adapters to train, or those of a checkpoint; a ModelError if they do not fit."""
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError:
        raise ModelError(
            'model.lora_rank needs peft: pip install "rollwise[lora]", or set it to 0'
        ) from None
    if checkpoint is not None:
        try:
            return PeftModel.from_pretrained(model, str(checkpoint), is_trainable=True)
        except Exception as error:  # its files may say anything
            raise ModelError(f"the adapters in {checkpoint} cannot be read: {error}") from error
    modules: str | list[str] = settings.lora_modules
    if modules != "all-linear":
        modules = [name.strip() for name in settings.lora_modules.split(",")]
    adapters = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=modules,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, adapters)
    except ValueError as error:
        raise ModelError(f"model.lora_modules: {error}") from None
