"""The settings of the model."""

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from rollwise.config.sections import Few, Section
from rollwise.sampling.checks import Above0

BUILT_IN = "running-sums"
"""The name of the built-in model and of the built-in task."""

TOOL_SUMS = "tool-sums"
"""The same for episodes: the task with a calculator, and a model that half knows how to use it."""

BUILT_IN_NAMES = (BUILT_IN, TOOL_SUMS)
"""The models and tasks that come with the package."""


def looks_local(path: str) -> bool:
    """Return whether a model's path is that of a folder, not a name on the hub."""
    return path.startswith((".", "/", "~")) or Path(path).is_dir()


SMALL = 24_000_000
"""Bytes of weights up to which a second thread of the CPU gains less than it loses by waiting."""


def is_small(path: str) -> bool:
    """Return whether a model's folder holds few weights; not of adapters, nor of the hub's."""
    folder = Path(path).expanduser()
    files = [*folder.glob("model*.safetensors")] if folder.is_dir() else []
    return bool(files) and sum(file.stat().st_size for file in files) <= SMALL


class ModelSource(Section):
    """A model, and where it is run."""

    path: str = BUILT_IN
    """The model: `running-sums` or `tool-sums` (built in), a folder with a model and its tokenizer,
    or a name on the hub."""
    device: str = "auto"
    """Device: `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`."""
    cpu_threads: Few | None = None
    """Threads on a CPU; default: 1 for models of a few million parameters, else as `torch`
    chooses."""


class ModelSettings(ModelSource):
    """The model that is trained."""

    lora_rank: Annotated[int, Ge(0), Le(2**16)] = 0
    """Rank of the LoRA adapters that are trained; 0 trains all weights instead."""
    lora_alpha: Above0 = 32.0
    """LoRA's alpha: adapters are scaled by this divided by their rank."""
    lora_modules: str = "all-linear"
    """Layers with an adapter: `all-linear`, or names separated by commas."""
    frozen_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the frozen weights under adapters; `bfloat16` halves their memory."""
    gradient_checkpointing: bool | None = None
    """Whether activations are recomputed in the backward pass, for less memory and more time;
    default: on a GPU, where the model can."""
