"""`rollwise doctor`: what works here, why something does not, and what to type.

It loads no framework: what is installed is read from the packages' metadata and compared with the
releases that rollwise's own metadata admits. Only the containment of a model's programs is
tried out, and with `--try` a step of a run.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    KINDS,
    CommandConfig,
    CompareConfig,
    PlanConfig,
    TrainConfig,
    make_settings,
    read_toml,
)
from rollwise.config.model import looks_local
from rollwise.config.reading import setting_types
from rollwise.errors import ConfigError, RollwiseError
from rollwise.records import flatten
from rollwise.tasks import read_source
from rollwise.tasks.tables import is_path

MARKS: dict[State, str] = {"works": "ok", "missing": "--", "broken": "!!"}

TRACKERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}
SOURCES = ("data.train", "data.heldout", "data.sources", "benchmarks")

ReadForVerl = Callable[[Mapping[str, Any]], TrainConfig]


def examine(path: Path | None, as_json: bool, try_it: bool, read_for_verl: ReadForVerl) -> int:
    """Print the findings on everything, or on a settings file; returns the exit code.

    `read_for_verl` reads the settings of a file with a table `verl`, and raises a `ConfigError`
    for settings that verl cannot follow.
    """
    if path is None:
        if try_it:
            raise ConfigError("--try goes with a settings file: rollwise doctor FILE.toml --try")
        found = checks()
        # Training is possible, and all installed packages are admitted releases.
        broken = {(check.part, check.name) for check in found if check.state == "broken"}
        well = found[0].state == "works" and broken.isdisjoint(entry[:2] for entry in EXTRAS)
    else:
        try:
            found = _of_file(path, try_it, read_for_verl)
        except RollwiseError as error:
            found = [Check("settings", path.name, "broken", str(error), "see docs/settings.md")]
        well = all(check.state == "works" for check in found)
    about = _machine()
    if as_json:
        print(json.dumps({**about, "checks": [*map(asdict, found)], "ok": well}, indent=2))
    else:
        _show(about, found)
    return 0 if well else 1


def _of_file(path: Path, try_it: bool, read_for_verl: ReadForVerl) -> list[Check]:
    """Check a settings file, and what its settings need; see `examine`."""
    given = read_toml(path)
    if "verl" in given:
        command, runs = "verl", [read_for_verl(given)]
        detail = "valid for `rollwise verl`; the table [verl] itself is not checked"
    else:
        fits = [name for name, kind in KINDS.items() if given.keys() <= kind.model_fields.keys()]
        names = flatten(given, ".").keys()
        whole = [name for name in fits if names <= setting_types(KINDS[name], given).keys()]
        command = next(iter(whole + fits), "train")
        detail, runs = _runs(command, given)
    if try_it and command != "train":
        of = "verl" if command == "verl" else f"`{command}`"
        raise ConfigError(f"--try takes a step of `rollwise train`; the file is for {of}")
    found = [Check("settings", path.name, "works", detail), *_needed(command, runs)]
    if try_it and runs[0].backend.type == "tinker":
        raise ConfigError("--try takes a step on this machine, but this model runs on Tinker")
    if try_it and all(check.state == "works" for check in found):
        found.append(try_step(runs[0]))
    return found


def _runs(command: str, given: dict[str, Any]) -> tuple[str, list[Any]]:
    """Say what settings are valid for; return those of each run that needs something here."""
    lengths = {"steps", "tokens", "seconds", "rewards"}
    replayed = command == "compare" and not given.keys() & lengths
    config = make_settings(KINDS[command], given, {"rewards": "recorded"} if replayed else {})
    detail, runs = f"valid for `rollwise {command}`", [config]
    if isinstance(config, CompareConfig):
        config.check_methods()
        runs = [*config.each().values()]
    if isinstance(config, PlanConfig) or getattr(config, "rewards", None):
        runs = []  # nothing is trained
    if replayed:
        detail += " with `--rewards`; to train, add `steps`, `tokens` or `seconds`"
    return detail, runs


def _needed(command: str, runs: Sequence[Any]) -> list[Check]:
    """Check what runs need, and the files that they name."""
    needed = {each for run in runs for each in _needs(run)}
    if command == "verl":  # which brings its own engines and learners
        kept = ("graders", "containment", *TRACKERS.values())
        needed = {each for each in needed if {*each} & {*kept}} | {("trainers", "verl")}
    found = [check for check in checks() if (check.part, check.name) in needed]
    for run in runs:
        model = run.model.path
        if looks_local(model) and not Path(model).expanduser().is_dir():
            found.append(Check("model", model, "missing", "no such folder"))
        sources = _sources(flatten(run.model_dump(), "."))
        found += [_check_file(run, source) for source in sources if is_path(source)]
    return list(dict.fromkeys(found))


def _needs(config: CommandConfig) -> Iterator[tuple[str, str]]:
    """Yield part and name of each check that a run's settings depend on."""
    settings = flatten(config.model_dump(), ".")
    hosted = settings.get("backend.type") == "tinker"
    grading = settings["grading.type"]
    runs_code = grading == "code" and not settings["grading.uncontained"]
    trackers = [TRACKERS.get(name, name) for name in settings.get("records.trackers", ())]
    of_hub = ("/" in s and not is_path(s) and not Path(s).exists() for s in _sources(settings))
    table = (
        ("train", "built-in model and learner", True),
        ("trainers", "Tinker", hosted),
        ("engines", settings["engine.type"], not hosted),
        ("train", "adapters (LoRA)", not hosted and settings.get("model.lora_rank")),
        ("graders", grading, grading != "code" or runs_code),
        ("containment", "sandbox", runs_code),
        ("train", "data sets of the hub", any(of_hub)),
        *(("train", name, True) for name in trackers),
    )
    yield from ((part, name) for part, name, needed in table if needed)


def _sources(settings: Mapping[str, Any]) -> list[str]:
    named = [settings.get(name) or [] for name in SOURCES]
    texts = [s for each in named for s in ([each] if isinstance(each, str) else each)]
    return [text.partition("=")[2] or text for text in texts]  # a benchmark may be name=file


def _check_file(config: Any, source: str) -> Check:
    """Read the problems of a file as the command would."""
    if not Path(source).expanduser().exists():
        return Check("data", source, "missing", "no such file")
    try:
        found = read_source(source, config.data, "")
    except RollwiseError as error:
        return Check("data", source, "broken", str(error))
    if not found.problems:
        return Check("data", source, "broken", f"no usable problem: {found.describe()}")
    return Check("data", source, "works", found.describe())


def _machine() -> dict[str, Any]:
    """Describe this machine, and say where the documentation is, without loading anything."""
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
