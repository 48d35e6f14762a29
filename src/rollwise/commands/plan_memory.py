"""`rollwise plan --memory`: what a run takes of a GPU's memory, and what to change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rollwise.config import make_config
from rollwise.errors import ConfigError
from rollwise.evaluation.memory import MemoryPlan, changes_that_fit, plan_memory, read_shape

GPU_GB = 24.0
"""The GPU that is planned for if none is named."""


def show_memory(
    model: Path, settings: Mapping[str, Any], gpu_gb: float | None, console: Console
) -> bool:
    """Show what a run takes of a GPU, whether it fits, and what to change first.

    Args:
        model: A model's folder, or its `config.json`.
        settings: Of `rollwise train`.
        gpu_gb: The GPU's memory in GB; 24 by default.
        console: Where to show it.

    Returns:
        Whether it fits as it is.

    Raises:
        ConfigError: The model's configuration or the settings cannot be used.
    """
    gpu_gb = GPU_GB if gpu_gb is None else gpu_gb
    if gpu_gb <= 0:
        raise ConfigError(f"--gpu-gb must be above 0, it is {gpu_gb:g}")
    shape = read_shape(model)
    # A name is enough to get the defaults of a model that is not the built-in one.
    named = {**settings, "model": {"path": str(model), **dict(settings.get("model", {}))}}
    config = make_config(named)
    plan = plan_memory(shape, config, gpu_gb * 1e9)
    console.print(f"{shape.parameters / 1e9:.2f} billion parameters")
    console.print(table_of(plan))
    fits = plan.peak <= gpu_gb * 1e9
    console.print(f"{plan.peak / 1e9:.1f} of {gpu_gb:g} GB: {'fits' if fits else 'does not fit'}")
    if not fits:
        changes, changed = changes_that_fit(shape, config, gpu_gb * 1e9)
        for change in changes:
            console.print(f"  change {change}", highlight=False, markup=False)
        enough = changed.peak <= gpu_gb * 1e9
        verdict = "fits" if enough else "and still does not fit: take a smaller model or shorter "
        console.print(
            f"  then {changed.peak / 1e9:.1f} GB: {verdict}{'' if enough else 'responses'}"
        )
    return fits


def table_of(plan: MemoryPlan) -> Table:
    """Return the plan as a table."""
    table = Table("what", "when", "GB")
    parts = {
        "always": plan.held,
        "learning": plan.learning,
        "update": plan.update,
        "drawing": plan.drawing,
    }
    for when, values in parts.items():
        for name, value in values.items():
            table.add_row(name, when, f"{value / 1e9:.2f}")
    return table
