"""`rollwise doctor FILE`: whether a run fits into the memory of a GPU."""

import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rollwise.commands.check import Check
from rollwise.commands.plan_memory import GPU_GB
from rollwise.config import BUILT_IN_NAMES, TrainConfig
from rollwise.errors import ConfigError
from rollwise.evaluation.memory import changes_that_fit, plan_memory, read_shape


def memory_of(config: Any, model: Path | None, gpu_gb: float | None) -> Iterator[Check]:
    """Plan the memory of a training run, if its GPU and the size of its model are known."""
    if not isinstance(config, TrainConfig) or config.backend.type == "tinker":
        return
    asked = model is not None or gpu_gb is not None
    if gpu_gb is None and config.model.device != "cpu":
        gpu_gb = gpu_here(config.model.device)
    if gpu_gb is None and asked:
        gpu_gb = GPU_GB
    if gpu_gb is None:
        return
    name, path = f"GPU of {gpu_gb:g} GB", model or _model_config(config.model.path)
    if path is None:
        if asked:
            fix = "--memory MODEL: its folder, or its config.json"
            detail = f"not planned: no config.json of {config.model.path} here"
            yield Check("memory", name, "missing", detail, fix)
        return
    try:
        shape = read_shape(path)
    except ConfigError as error:
        if asked:
            yield Check("memory", name, "missing", f"not planned: {error}")
        return
    plan = plan_memory(shape, config, gpu_gb * 1e9)
    detail = f"{plan.peak / 1e9:.1f} of {gpu_gb:g} GB planned (docs/gpu.md)"
    if plan.peak <= gpu_gb * 1e9:
        yield Check("memory", name, "works", detail)
        return
    changes, changed = changes_that_fit(shape, config, gpu_gb * 1e9)
    enough = changed.peak <= gpu_gb * 1e9
    lines = [f"change {change}" for change in changes]
    lines.append(f"then {changed.peak / 1e9:.1f} GB" + ("" if enough else ", still too much"))
    yield Check("memory", name, "broken", f"does not fit: {detail}", "\n".join(lines))


def gpu_here(device: str) -> float | None:
    """Return the memory of an NVIDIA GPU in GB, of `cuda:N` the one with that number; or None."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        number = int(device.partition(":")[2] or 0)
        return round(int(done.stdout.splitlines()[number]) * 2**20 / 1e9, 1)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None  # none, or none that says how large it is


def _model_config(name: str) -> Path | None:
    """Find a model's `config.json` here: built in, in its folder, or in the hub's cache."""
    if name in BUILT_IN_NAMES:
        return Path(str(files("rollwise"))) / "models" / name
    folder = Path(name).expanduser()
    if (folder / "config.json").exists():
        return folder
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except (ImportError, ValueError):  # not installed, or no name of the hub
        return None
    return Path(found) if isinstance(found, str) else None
