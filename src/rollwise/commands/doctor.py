"""`rollwise doctor`: what works here, why something does not, and what to type.

It loads no framework: what is installed is read from the packages' metadata and compared with the
releases that rollwise's own metadata admits. Only what holds in programs of a model is tried out,
and with `--try` a step of a run.
"""

import json
import os
import platform
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rollwise.commands.check import EXTRAS, Check, State, checks
from rollwise.commands.doctor_plugins import try_plugins
from rollwise.config import (
    CommandConfig,
    CompareConfig,
    EvaluateConfig,
    PlanConfig,
    PrepareConfig,
    TrainConfig,
    make_config,
    make_settings,
    read_toml,
)
from rollwise.errors import ConfigError, RollwiseError
from rollwise.records import flatten
from rollwise.tasks.tables import is_path

WIDTH = 80
MARKS: dict[State, str] = {"works": "ok", "missing": "--", "broken": "!!"}

KINDS: dict[str, type[CommandConfig]] = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "prepare": PrepareConfig,
    "compare": CompareConfig,
    "plan": PlanConfig,
}

TRACKERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}
SOURCES = ("data.train", "data.heldout", "data.sources")

Settings = Mapping[str, Any]
"""Settings by their full names, such as `model.lora_rank`."""

ReadForVerl = Callable[[Mapping[str, Any]], TrainConfig]


def examine(path: Path | None, as_json: bool, try_it: bool, read_for_verl: ReadForVerl) -> int:
    """Print what is found, of everything or of a settings file; returns the exit code.

    Args:
        path: A settings file, if any; one with a table `verl` is for verl.
        as_json: Whether to print JSON.
        try_it: Whether to take a step of the file's run, if nothing is missing.
        read_for_verl: Reads the settings of a file with a table `verl`, and raises a `ConfigError`
            at what verl cannot follow.

    Raises:
        ConfigError: A step is to be tried without a settings file.
    """
    if path is None and try_it:
        raise ConfigError("--try goes with a settings file: rollwise doctor FILE.toml --try")
    if path is None:
        found = checks()
        well = is_well(found)
    else:
        try:
            found = of_file(path, try_it, read_for_verl)
        except RollwiseError as error:
            found = [Check("settings", path.name, "broken", str(error), "see docs/settings.md")]
        well = all(check.state == "works" for check in found)
    about = machine()
    data = {**about, "checks": [asdict(check) for check in found], "ok": well}
    print(json.dumps(data, indent=2) if as_json else as_text(about, found))
    return 0 if well else 1


def of_file(path: Path, try_it: bool, read_for_verl: ReadForVerl) -> list[Check]:
    """Check a settings file, and what its settings need; see `examine`.

    Raises:
        ConfigError: The file cannot be read, a setting is wrong, or its run cannot be tried.
    """
    given = read_toml(path)
    if "verl" in given:
        runs: list[Any] = [read_for_verl(given)]
        command, detail = (
            "verl",
            "valid for `rollwise verl`; the table [verl] itself is not checked",
        )
    else:
        fits = [n for n, kind in KINDS.items() if given.keys() <= kind.model_fields.keys()]
        command = fits[0] if fits else "train"
        detail, runs = _runs(command, given)
    if try_it and command != "train":
        of = "verl" if command == "verl" else f"`{command}`"
        raise ConfigError(f"--try takes a step of `rollwise train`; the file is for {of}")
    found = [Check("settings", path.name, "works", detail), *_needed(command, runs)]
    if not try_it:
        return found
    [run] = runs
    if run.backend.type == "tinker":
        raise ConfigError("--try takes a step on this machine, and this model is at Tinker")
    if any(check.state != "works" for check in found):
        return found
    from rollwise.commands.doctor_try import try_step

    return [*found, try_step(run)]


def _runs(command: str, given: dict[str, Any]) -> tuple[str, list[Any]]:
    """Say what settings are valid for; return those of each run that needs something here."""
    lengths = {"steps", "tokens", "seconds", "rewards", "folders"}
    without = command == "compare" and not given.keys() & lengths
    config = make_settings(KINDS[command], given, {"rewards": "recorded"} if without else {})
    detail, runs = f"valid for `rollwise {command}`", [config]
    if isinstance(config, CompareConfig):
        config.check_methods()
        runs = [make_config(config.run_settings(method, 0, {})) for method in config.compared]
    if isinstance(config, PlanConfig) or getattr(config, "rewards", None):
        runs = []  # nothing is trained
    if without:
        both = "`rollwise plan` and " if given.keys() <= PlanConfig.model_fields.keys() else ""
        detail = (
            f"valid for {both}`rollwise compare` with `--rewards`; to train, add `steps`, `tokens` "
            "or `seconds`"
        )
    return detail, runs


def _needed(command: str, runs: Sequence[CommandConfig]) -> list[Check]:
    """Check what runs need, and the files and the classes of the user's that they name."""
    needed = {each for run in runs for each in needs(run)}
    if command == "verl":  # which brings its own engines and learners
        kept = ("graders", "containment", *TRACKERS.values())
        needed = {each for each in needed if {*each} & {*kept}} | {("trainers", "verl")}
    found = [check for check in checks() if (check.part, check.name) in needed]
    for run in runs:
        for source in _sources(_flat(run)):
            if is_path(source):
                exists = Path(source).exists()
                state: State = "works" if exists else "missing"
                found.append(Check("data", source, state, "found" if exists else "no such file"))
        if isinstance(run, TrainConfig):
            found += try_plugins(run)
    return list(dict.fromkeys(found))


def needs(config: CommandConfig) -> Iterator[tuple[str, str]]:
    """Yield part and name of each check that a run's settings depend on."""
    settings = _flat(config)
    hosted = settings.get("backend.type") == "tinker"
    optimizer = settings.get("learner.optimizer", "adamw")
    grading = settings["grading.type"]
    runs_code = grading == "code" and not settings["grading.uncontained"]
    table = (
        ("train", "built-in model and learner", True),
        ("trainers", "Tinker", hosted),
        ("engines", settings["engine.type"], not hosted),
        ("train", "adapters (LoRA)", not hosted and settings.get("model.lora_rank")),
        ("train", "optimizers in 8 bits", not hosted and optimizer != "adamw"),
        ("graders", grading, grading != "code" or runs_code),
        ("containment", "sandbox", runs_code),
        ("train", "data sets of the hub", any(map(_is_of_hub, _sources(settings)))),
        *(("train", name, True) for name in _trackers(settings)),
    )
    yield from ((part, name) for part, name, needed in table if needed)


def _flat(config: CommandConfig) -> Settings:
    return flatten(config.model_dump(), ".")


def _trackers(settings: Settings) -> list[str]:
    return [TRACKERS.get(name, name) for name in settings.get("records.trackers", ())]


def _sources(settings: Settings) -> list[str]:
    named = [settings.get(name) or [] for name in SOURCES]
    return [s for each in named for s in ([each] if isinstance(each, str) else each)]


def _is_of_hub(source: str) -> bool:
    return "/" in source and not is_path(source) and not Path(source).exists()


def machine() -> dict[str, Any]:
    """Say what this machine is, and where our pages lie, without loading anything."""
    package = Path(__file__).parents[1]
    in_wheel = package / "share"
    devices = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return {
        "rollwise": version("rollwise"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpus": len(devices),
        "pages": str(in_wheel if in_wheel.exists() else package.parents[1]),
    }


def is_well(found: Sequence[Check]) -> bool:
    """Say whether training is possible, and all that is installed is of an admitted release."""
    releases = {(part, name) for part, name, _, _ in EXTRAS}
    broken = {(check.part, check.name) for check in found if check.state == "broken"}
    return found[0].state == "works" and not releases & broken


def as_text(about: Mapping[str, Any], found: Iterable[Check]) -> str:
    """Return the findings in lines of at most 80 columns."""
    gpus = f"{about['gpus']} NVIDIA GPU{'s' if about['gpus'] != 1 else ''}"
    lines = [
        f"rollwise {about['rollwise']}, Python {about['python']}, {about['system']}, "
        f"{about['cores']} cores, {gpus if about['gpus'] else 'no NVIDIA GPU'}",
        "docs/ and examples/ are in",
        f"  {about['pages']}",
    ]
    part, indent = "", " " * 34
    for check in found:
        if check.part != part:
            part = check.part
            lines += ["", part]
        start = f"  {MARKS[check.state]}  {check.name:<27} "
        if len(start) > len(indent):
            lines.append(start.rstrip())
            start = indent
        text = check.detail + (f"\n{check.fix}" if check.fix and check.state != "works" else "")
        for paragraph in text.splitlines():
            lines += textwrap.wrap(paragraph, WIDTH, initial_indent=start, subsequent_indent=indent)
            start = indent
    return "\n".join(lines)
