"""The settings of the model."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from rollwise.config.sections import Section

BUILT_IN = "running-sums"
"""The name of the built-in model and of the built-in task."""

TOOL_SUMS = "tool-sums"
"""The same for episodes: the task with a calculator, and a model that half knows how to use it."""

BUILT_IN_NAMES = (BUILT_IN, TOOL_SUMS)
"""The models and tasks that come with the package."""


def looks_local(path: str) -> bool:
    """Say whether a model's path is that of a folder, not a name on the hub."""
    return path.startswith((".", "/", "~")) or Path(path).is_dir()


class ModelSource(Section):
    """A model, and where it is run."""

    path: str = BUILT_IN
    """Load this model: `running-sums` or `tool-sums` (built in), a folder with a model and its
    tokenizer, or a name on the hub."""
    device: str = "auto"
    """Run it on `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`."""
    cpu_threads: int | None = Field(None, ge=1, le=4096)
    """Compute with this many threads on a CPU; by default as many as `torch` chooses."""


class ModelSettings(ModelSource):
    """The model that is trained."""

    lora_rank: int = Field(0, ge=0, le=2**16)
    """Train low-rank adapters of this rank instead of all weights; 0 trains all weights."""
    lora_alpha: float = Field(32.0, gt=0)
    """Scale adapters by this, divided by their rank."""
    lora_modules: str = "all-linear"
    """Give these layers an adapter: `all-linear`, or names separated by commas."""
    frozen_dtype: Literal["float32", "bfloat16"] = "float32"
    """Keep the weights under adapters, which are not trained, in this precision; `bfloat16` halves
    their memory."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
