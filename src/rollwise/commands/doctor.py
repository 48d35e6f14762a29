"""`rollwise doctor`: what works here, why something does not, and what to type.

It loads no framework: what is installed is read from the packages' metadata and compared with the
releases that rollwise's own metadata admits. Only what holds in programs of a model is tried out,
and with `--try` a step of a run.
"""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollwise.commands.check import EXTRAS, Check, State, checks
from rollwise.commands.doctor_try import try_step
from rollwise.config import (
    CommandConfig,
    CompareConfig,
    EvaluateConfig,
    PlanConfig,
    PrepareConfig,
    TrainConfig,
    make_settings,
    read_toml,
)
from rollwise.errors import ConfigError, RollwiseError

MARKS: dict[State, str] = {"works": "ok", "missing": "--", "broken": "!!"}

KINDS: dict[str, type[CommandConfig]] = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "prepare": PrepareConfig,
    "compare": CompareConfig,
    "plan": PlanConfig,
}


def examine(path: Path | None, as_json: bool, try_it: bool) -> int:
    """Print what works here and whether a settings file is valid; returns the exit code."""
    if path is None and try_it:
        raise ConfigError("--try goes with a settings file: rollwise doctor FILE.toml --try")
    of_file = [] if path is None else _of_file(path, try_it)
    here = checks()
    well = all(check.state == "works" for check in of_file) and (try_it or _is_well(here))
    found, about = [*of_file, *here], _machine()
    if as_json:
        data = {**about, "checks": [asdict(check) for check in found], "ok": well}
        print(json.dumps(data, indent=2))
    else:
        _show(about, found)
    return 0 if well else 1


def _of_file(path: Path, try_it: bool) -> list[Check]:
    """Check a settings file, and take a step by it with `try_it`."""
    try:
        command, config = _read(read_toml(path))
        if try_it and command != "train":
            raise ConfigError(
                f"--try takes a step of `rollwise train`; the file is for `{command}`"
            )
        if try_it and config.backend.type == "tinker":
            raise ConfigError("--try takes a step on this machine, and this model is at Tinker")
    except RollwiseError as error:
        return [Check("settings", path.name, "broken", str(error), "see docs/settings.md")]
    found = Check("settings", path.name, "works", f"valid for `rollwise {command}`")
    return [found, try_step(config)] if try_it else [found]


def _read(given: dict[str, Any]) -> tuple[str, Any]:
    """Return the command that settings are for, and what they come to."""
    if "verl" in given:
        raise ConfigError(
            "the file is for `rollwise verl`, which checks it: rollwise verl FILE --output DIR "
            "--print"
        )
    fits = [name for name, kind in KINDS.items() if given.keys() <= kind.model_fields.keys()]
    command = fits[0] if fits else "train"
    lengths = {"steps", "tokens", "seconds", "rewards"}
    if command == "compare" and not given.keys() & lengths:  # to be replayed, or planned
        given = {**given, "rewards": "recorded"}
    config = make_settings(KINDS[command], given)
    if isinstance(config, CompareConfig):
        config.check_methods()
    return command, config


def _machine() -> dict[str, Any]:
    """Say what this machine is, and where our pages lie, without loading anything."""
    package = Path(__file__).parents[1]
    in_wheel = package / "share"
    return {
        "rollwise": version("rollwise"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpus": len(list(Path("/dev").glob("nvidia[0-9]*"))),
        "pages": str(in_wheel if in_wheel.exists() else package.parents[1]),
    }


def _is_well(found: Iterable[Check]) -> bool:
    """Say whether training is possible, and all that is installed is of an admitted release."""
    states = {(check.part, check.name): check.state for check in found}
    of_extras = [states[part, name] for part, name, _, _ in EXTRAS]
    return of_extras[0] == "works" and "broken" not in of_extras


def _show(about: Mapping[str, Any], found: Iterable[Check]) -> None:
    """Print the findings in lines of at most 80 columns."""
    gpus = f"{about['gpus']} NVIDIA GPU{'s' if about['gpus'] != 1 else ''}"
    console = Console(width=80, highlight=False, markup=False)
    console.print(
        f"rollwise {about['rollwise']}, Python {about['python']}, {about['system']}, "
        f"{about['cores']} cores, {gpus if about['gpus'] else 'no NVIDIA GPU'}\n"
        f"docs/ and examples/ are in\n  {about['pages']}",
        soft_wrap=True,
    )
    for part, of_part in groupby(found, lambda check: check.part):
        table = Table.grid(padding=(0, 2), pad_edge=False)
        table.add_column(width=4)
        table.add_column(width=26, overflow="fold")
        table.add_column(overflow="fold")
        for check in of_part:
            fix = f"\n{check.fix}" if check.fix and check.state != "works" else ""
            mark = f"  {MARKS[check.state]}"
            table.add_row(mark, Text(check.name), Text(check.detail + fix))
        console.print(f"\n{part}")
        console.print(table)
