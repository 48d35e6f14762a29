"""`rollwise verl`: one TOML file to a run of verl."""

import logging
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.config.model import looks_local
from rollwise.errors import ConfigError, RunError
from rollwise.integrations.verl.data import write_data
from rollwise.integrations.verl.overrides import overrides
from rollwise.integrations.verl.settings import missing, read_settings

MAIN = "verl.trainer.main_ppo"

log = logging.getLogger(__name__)


def plan(layers: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Write the problems for verl into the run's folder, and return verl's overrides.

    Later layers of settings win; a table `verl` holds verl's own.
    """
    folder = folder.absolute()
    config, given, verl = read_settings(layers)
    model = config.model.path
    if looks_local(model) and not Path(model).expanduser().is_dir():
        log.warning("model.path: there is no folder %s here, which verl's workers need", model)
    files = folder / "data" / "train.parquet", folder / "data" / "heldout.parquet"
    if not {"data.train_files", "data.val_files"} <= verl.keys():
        files = write_data(config, folder / "data")
    return overrides(config, given, verl, folder, files)


def run(layers: Sequence[Mapping[str, Any]], folder: Path, resume: bool, print_only: bool) -> int:
    """Run verl, or print its overrides, one a line; returns the exit code."""
    if not resume and (folder / "metrics.jsonl").exists():
        raise RunError(f"{folder} holds a run; give another --output, or --resume to continue it")
    if not print_only and (reason := missing()):
        raise ConfigError(reason)
    chosen = plan(layers, folder)
    if print_only:
        print("\n".join(shlex.quote(override) for override in chosen))
        return 0
    process = subprocess.Popen([sys.executable, "-m", MAIN, *chosen])
    try:
        return process.wait()
    finally:  # `subprocess.run` does not wait for what it kills after Ctrl-C
        process.kill()
        process.wait()
