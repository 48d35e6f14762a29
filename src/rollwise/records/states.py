"""The state of a prompt sampler in files, without pickling."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from rollwise.beliefs.state import saveable
from rollwise.errors import RunError, one_line
from rollwise.files import damaged_files, write_checksums, written_whole
from rollwise.plugins import plugin_name
from rollwise.prompts import PromptSampler


def save_sampler(folder: Path, sampler: PromptSampler, **progress: Any) -> None:
    """Write a sampler's state as `sampler.safetensors` and, with `progress`, `state.json`."""
    held = saveable(sampler)
    arrays = {k: np.ascontiguousarray(v) for k, v in held.items() if isinstance(v, np.ndarray)}
    others = {k: v for k, v in held.items() if k not in arrays}
    scalars = {k: v.item() if isinstance(v, np.generic) else v for k, v in others.items()}
    safetensors.numpy.save_file(arrays, folder / "sampler.safetensors")
    state = {**progress, "sampler": scalars}
    (folder / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")


def load_sampler(folder: Path, sampler: PromptSampler) -> dict[str, Any]:
    """Restore a prompt sampler from what `save_sampler` wrote; returns the whole `state.json`.

    Raises:
        OSError: A file is missing.
        ValueError, KeyError, SafetensorError: It is broken, or of another sampler or data set.
    """
    state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    held = safetensors.numpy.load_file(folder / "sampler.safetensors") | state["sampler"]
    try:
        sampler.load_state_dict(held)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(
            f"the state does not fit the sampler {plugin_name(sampler)}: its `load_state_dict` "
            f"raised {one_line(error)}; the state has {', '.join(sorted(held)) or 'nothing'}"
        ) from error
    return state


def save_state(folder: Path, sampler: PromptSampler, **progress: Any) -> None:
    """Do what `save_sampler` does, in a folder of its own, completely or not at all."""
    with written_whole(folder) as partial:
        partial.mkdir(parents=True)
        save_sampler(partial, sampler, **progress)
        write_checksums(partial)


def load_state(folder: Path, sampler: PromptSampler, *names: str) -> list[Any]:
    """Restore what `save_state` wrote, or raise a `RunError`; returns progress by these names."""
    try:
        if damaged := damaged_files(folder):
            raise ValueError(f"{', '.join(damaged)} are damaged")
        state = load_sampler(folder, sampler)
        return [state[name] for name in names]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"cannot resume from {folder}: {error}") from error
