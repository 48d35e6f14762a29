"""Models already on disk: those of a run, and adapters with the model they are for."""

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from rollwise.config import ModelSettings, ModelSource
from rollwise.config.model import looks_local
from rollwise.engines.ends import end_tokens
from rollwise.errors import ConfigError, ModelError
from rollwise.files import damaged_files, list_checkpoints
from rollwise.models.loading import (
    NEEDED,
    check_tokens,
    from_pretrained,
    load_model,
    load_tokenizer,
    model_path,
)

ADAPTERS = "adapter_config.json"
"""The file that a folder of adapters has in place of a model's `config.json`."""


def find_model(path: str) -> str:
    """Find the model of a training run or of one of its checkpoints; else return `path` itself.

    Raises:
        ModelError: The run has no checkpoint yet, or the folder holds no model.
    """
    folder = Path(path).expanduser()
    if (folder / "checkpoints").is_dir():
        found = list_checkpoints(folder / "checkpoints")
        if not found:
            raise ModelError(
                f"model.path: the run in {path} has no checkpoint yet (a verl checkpoint must be "
                "merged into a model: docs/verl.md)"
            )
        folder = found[-1]
    for model in (folder / "model", folder):
        if (model / "config.json").exists() or (model / ADAPTERS).exists():
            return str(model)
    if looks_local(path):
        raise ModelError(f"model.path: there is no model in the folder {path}; {NEEDED}")
    return path


def load_saved(source: ModelSource) -> tuple[Any, PreTrainedTokenizerBase]:
    """Load a model to draw from, or adapters together with the model that they are for."""
    _check(source.path)
    adapters = Path(source.path).expanduser()
    if not (file := adapters / ADAPTERS).exists():
        return load_model(ModelSettings(**asdict(source)))
    try:
        base = str(json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"model.path: {file} does not say which model the adapters are for ({error!r})"
        ) from None
    # Any rank above 0 says that there are adapters; their own rank is in their folder.
    settings = {**asdict(source), "path": base, "lora_rank": 1}
    return load_model(ModelSettings(**settings), adapters)


def describe_saved(source: ModelSource) -> tuple[Any, PreTrainedTokenizerBase]:
    """Read a model's `config`, `generation_config` and tokenizer, for an engine that loads it.

    Raises:
        ConfigError: The folder holds adapters, which such an engine cannot load.
        ModelError: There is no tokenizer, or a file is invalid or damaged.
    """
    _check(source.path)
    path = model_path(source.path)
    if (Path(path) / ADAPTERS).exists():
        raise ConfigError(
            f"`engine.type` must be `transformers` for adapters, and {path} holds adapters; or "
            "merge them into their model"
        )
    tokenizer = load_tokenizer(path)
    config = from_pretrained(AutoConfig, path)
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:  # the model has no such file
        generation = GenerationConfig.from_model_config(config)
    check_tokens(path, config, tokenizer)
    return SimpleNamespace(config=config, generation_config=generation), tokenizer


def describe_ends(path: str) -> str:
    """Describe what ends a response; raises what `describe_saved` and `end_tokens` do."""
    folder = Path(find_model(path)).expanduser()
    if (folder / ADAPTERS).exists():
        tokenizer, generation = load_tokenizer(str(folder)), None
    else:
        model, tokenizer = describe_saved(ModelSource(path=find_model(path)))
        generation = model.generation_config
    ends = sorted(end_tokens(generation, tokenizer))
    names = zip(tokenizer.convert_ids_to_tokens(ends), ends, strict=True)
    return "a response ends with " + " or ".join(f"{name} ({token})" for name, token in names)


def _check(path: str) -> None:
    """Refuse the model of a checkpoint if a file of it is damaged."""
    model = Path(path).expanduser()
    damaged = damaged_files(model.parent, within="model/") if model.name == "model" else []
    if damaged:
        raise ModelError(
            f"model.path: the checkpoint {model.parent} is damaged: {', '.join(damaged)} differ "
            "from what was written"
        )
