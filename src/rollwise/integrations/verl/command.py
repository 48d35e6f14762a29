"""`rollwise verl`: one TOML file to a run of verl."""

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.config.base import merge
from rollwise.errors import ConfigError, RunError
from rollwise.integrations.verl.data import write_data
from rollwise.integrations.verl.overrides import MODE, overrides
from rollwise.integrations.verl.settings import missing, mode_of, train_config, unsupported
from rollwise.records import flatten

MAIN = "verl.trainer.main_ppo"


def plan(layers: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Write the problems for verl, and return its overrides.

    Args:
        layers: Settings, later ones win; a table `verl` holds verl's own.
        folder: The run's.

    Raises:
        RollwiseError: The settings or the data are wrong; says how.
    """
    folder = folder.absolute()
    given, verl = split(layers)
    config = train_config(given)
    own = flatten(verl, ".")
    if wrong := unsupported(config, mode_of(own.get(MODE, "sync"))):
        raise ConfigError("\n".join(wrong))
    files = folder / "data" / "train.parquet", folder / "data" / "heldout.parquet"
    if not {"data.train_files", "data.val_files"} <= own.keys():
        files = write_data(config, folder / "data")
    return overrides(config, given, verl, folder, files)


def split(layers: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate rollwise's settings from verl's own.

    Raises:
        ConfigError: `verl` is not a table.
    """
    given: dict[str, Any] = {}
    verl: dict[str, Any] = {}
    for layer in layers:
        own = layer.get("verl", {})
        if not isinstance(own, Mapping):
            raise ConfigError(f"`verl` must be a table of verl's own settings; it is {own!r}")
        verl |= flatten(own, ".")
        given = merge(given, {key: value for key, value in layer.items() if key != "verl"})
    return given, verl


def run(layers: Sequence[Mapping[str, Any]], folder: Path, resume: bool, print_only: bool) -> int:
    """Run verl, or print its overrides, one a line; returns the exit code.

    Raises:
        RollwiseError: Says what is wrong, and what to do.
    """
    if not resume and (folder / "metrics.jsonl").exists():
        raise RunError(f"{folder} holds a run; give another --output, or --resume to continue it")
    if not print_only and (reason := missing()):
        raise ConfigError(reason)
    chosen = plan(layers, folder)
    if print_only:
        print("\n".join(shlex.quote(override) for override in chosen))
        return 0
    return subprocess.run([sys.executable, "-m", MAIN, *chosen]).returncode
