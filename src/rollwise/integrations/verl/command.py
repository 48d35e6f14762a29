"""`rollwise verl`: from one TOML file to a run of verl."""

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.commands.described import method_in_words
from rollwise.errors import ConfigError, RunError
from rollwise.integrations.verl.data import write_data
from rollwise.integrations.verl.overrides import overrides
from rollwise.integrations.verl.settings import read_settings
from rollwise.integrations.verl.upstream import UPSTREAM
from rollwise.releases import unmet

MAIN = "verl.trainer.main_ppo"


def run(layers: Sequence[Mapping[str, Any]], folder: Path, resume: bool, print_only: bool) -> int:
    """Run verl on problems in the run's folder, or print its overrides; returns the exit code.

    Later layers of settings win; a table `verl` holds verl's own.
    """
    begun = (folder / "metrics.jsonl").exists()
    if begun and not resume:
        raise RunError(f"{folder} holds a run; give another --output, or --resume to continue it")
    if not print_only and (reason := unmet("verl", UPSTREAM)):
        raise ConfigError(reason)
    config, given, verl = read_settings(layers)
    folder = folder.absolute()
    files = folder / "data" / "train.parquet", folder / "data" / "heldout.parquet"
    if not {"data.train_files", "data.val_files"} <= verl.keys():
        write_data(config, *files, begun)
    chosen = overrides(config, given, verl, folder, files)
    if print_only:
        print("\n".join(shlex.quote(override) for override in chosen))
        return 0
    print(method_in_words(config, given), flush=True)
    process = subprocess.Popen([sys.executable, "-m", MAIN, *chosen])
    try:
        return process.wait()
    finally:  # `subprocess.run` does not wait for what it kills after Ctrl-C
        process.kill()
        process.wait()
