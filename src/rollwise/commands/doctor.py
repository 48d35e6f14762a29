"""`rollwise doctor`: what works here, why something does not, and what to type.

It loads no framework: what is installed is read from the packages' metadata and compared with the
releases that rollwise's own metadata admits. Only what holds in programs of a model is tried out,
and with `--try` a step of a run.
"""

import json
import os
import platform
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rollwise.commands.check import EXTRAS, TRACKERS, Check, State, checks
from rollwise.commands.doctor_plugins import try_plugins
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

WIDTH = 80
MARKS: dict[State, str] = {"works": "ok", "missing": "--", "broken": "!!"}

KINDS: dict[str, type[CommandConfig]] = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "prepare": PrepareConfig,
    "compare": CompareConfig,
    "plan": PlanConfig,
}


LENGTHS = ("steps", "tokens", "seconds")
"""What a comparison that trains needs one of."""


def of_file(
    path: Path, try_it: bool, read_for_verl: Callable[[Mapping[str, Any]], TrainConfig]
) -> list[Check]:
    """Check a settings file, and what its settings need. A file with a table `verl` is for verl.

    Args:
        path: The file.
        try_it: Whether to take a step of the run, if nothing is missing.
        read_for_verl: Reads the settings of a file with a table `verl`, and raises a `ConfigError`
            at what verl cannot follow.

    Raises:
        ConfigError: The file cannot be read, a setting is wrong, or its run cannot be tried.
    """
    given = read_toml(path)
    if "verl" in given:
        if try_it:
            raise ConfigError("--try takes a step of `rollwise train`; the file is for verl")
        detail = "valid for `rollwise verl`; the table [verl] itself is not checked"
        run = read_for_verl(given)  # verl brings its own engines and learners
        own = {each for each in needs(run) if each[0] in ("graders", "containment")}
        return _found(path, detail, [run], own | {("trainers", "verl"), *_trackers(run)})
    fits = [n for n, kind in KINDS.items() if given.keys() <= kind.model_fields.keys()]
    command = fits[0] if fits else "train"
    without = command == "compare" and not given.keys() & {*LENGTHS, "rewards", "folders"}
    replayed = {"rewards": "recorded"} if without else {}
    config: CommandConfig = make_settings(KINDS[command], given, replayed)
    runs: list[Any] = [config]
    if isinstance(config, CompareConfig):
        config.check_methods()
        run_settings = [config.run_settings(method, 0, {}) for method in config.compared]
        runs = [make_settings(TrainConfig, settings) for settings in run_settings]
    if isinstance(config, PlanConfig) or getattr(config, "rewards", None):
        runs = []  # nothing is trained
    detail = f"valid for `rollwise {command}`"
    if without:
        both = "`rollwise plan` and " if given.keys() <= PlanConfig.model_fields.keys() else ""
        lengths = "`steps`, `tokens` or `seconds`"
        detail = f"valid for {both}`rollwise compare` with `--rewards`; to train, add {lengths}"
    found = _found(path, detail, runs, {each for run in runs for each in needs(run)})
    return [*found, *_tried(command, config, found)] if try_it else found


def _tried(command: str, config: CommandConfig, found: Sequence[Check]) -> list[Check]:
    """Take a step of a run, unless something that it needs is missing."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"--try takes a step of `rollwise train`; the file is for `{command}`")
    if config.backend.type == "tinker":
        raise ConfigError("--try takes a step on this machine, and this model is at Tinker")
    if not is_well(found, of_settings=True):
        return []
    from rollwise.commands.doctor_try import try_step

    return [try_step(config)]


def _found(
    path: Path, detail: str, runs: Sequence[Any], needed: Collection[tuple[str, str]]
) -> list[Check]:
    """Say that a file is valid, and check what its runs need, and the files that they name."""
    found = [check for check in checks() if (check.part, check.name) in needed]
    for run in runs:
        found += _files(run)
        if isinstance(run, TrainConfig):
            found += try_plugins(run)
    return [Check("settings", path.name, "works", detail), *dict.fromkeys(found)]


def needs(config: Any) -> Iterator[tuple[str, str]]:
    """Yield part and name of each check that a run's settings depend on."""
    yield "train", "built-in model and learner"
    if getattr(getattr(config, "backend", None), "type", "local") == "tinker":
        yield "trainers", "Tinker"
    else:
        yield "engines", config.engine.type
        if getattr(config.model, "lora_rank", 0):
            yield "train", "adapters (LoRA)"
        if getattr(getattr(config, "learner", None), "optimizer", "adamw") != "adamw":
            yield "train", "optimizers in 8 bits"
    if config.grading.type != "code":
        yield "graders", config.grading.type
    elif not config.grading.uncontained:
        yield "graders", "code"
        yield "containment", "sandbox"
    yield from _trackers(config)
    if any(_is_of_hub(source) for source in _sources(config)):
        yield "train", "data sets of the hub"


def _trackers(config: Any) -> Iterator[tuple[str, str]]:
    for tracker in getattr(getattr(config, "records", None), "trackers", ()):
        yield "train", TRACKERS.get(tracker, tracker)


def _sources(config: Any) -> list[str]:
    data = config.data
    named = [getattr(data, name, None) for name in ("train", "heldout", "sources")]
    listed = [each if isinstance(each, list | tuple) else [each] for each in named]
    return [str(source) for sources in listed for source in sources if source]


def _is_file(source: str) -> bool:
    return source.endswith((".parquet", ".jsonl", ".json"))


def _is_of_hub(source: str) -> bool:
    return "/" in source and not _is_file(source) and not Path(source).exists()


def _files(config: Any) -> Iterator[Check]:
    for source in _sources(config):
        if _is_file(source):
            exists = Path(source).exists()
            state: State = "works" if exists else "missing"
            yield Check("data", source, state, "found" if exists else "no such file")


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


def is_well(found: Iterable[Check], of_settings: bool) -> bool:
    """Say whether training is possible and nothing is broken; for a file, whether all is there."""
    found = list(found)
    if of_settings:
        return all(check.state == "works" for check in found)
    releases = {(part, name) for part, name, _, _ in EXTRAS}
    broken = [check for check in found if check.state == "broken"]
    return found[0].state == "works" and not any((c.part, c.name) in releases for c in broken)


def as_text(about: Mapping[str, Any], found: Iterable[Check]) -> str:
    """Return the findings in lines of at most 80 columns."""
    gpus = f"{about['gpus']} NVIDIA GPU{'s' if about['gpus'] != 1 else ''}"
    lines = [
        f"rollwise {about['rollwise']}, Python {about['python']}, {about['system']}, "
        f"{about['cores']} cores, {gpus if about['gpus'] else 'no NVIDIA GPU'}",
        f"docs/ and examples/ are in {about['pages']}",
    ]
    part = ""
    for check in found:
        if check.part != part:
            part = check.part
            lines += ["", part]
        start = f"  {MARKS[check.state]}  {check.name:<27} "
        if len(start) > 34:
            lines.append(start.rstrip())
            start = " " * 34
        text = check.detail + (f"\n{check.fix}" if check.fix and check.state != "works" else "")
        for paragraph in text.splitlines():
            lines += textwrap.wrap(
                paragraph, WIDTH, initial_indent=start, subsequent_indent=" " * 34
            )
            start = " " * 34
    return "\n".join(lines)


def as_data(about: Mapping[str, Any], found: Iterable[Check], well: bool) -> dict[str, Any]:
    """Return the findings for other programs."""
    return {**about, "checks": [asdict(check) for check in found], "ok": well}


def examine(
    path: Path | None,
    as_json: bool,
    try_it: bool,
    read_for_verl: Callable[[Mapping[str, Any]], TrainConfig],
) -> int:
    """Print what is found, of everything or of a settings file; returns the exit code.

    `of_file` describes the arguments.

    Raises:
        ConfigError: A step is to be tried without a settings file.
    """
    if path is None and try_it:
        raise ConfigError("--try goes with a settings file: rollwise doctor FILE.toml --try")
    if path is None:
        found = checks()
    else:
        try:
            found = of_file(path, try_it, read_for_verl)
        except RollwiseError as error:
            found = [Check("settings", path.name, "broken", str(error), "see docs/settings.md")]
    well = is_well(found, of_settings=path is not None)
    about = machine()
    print(json.dumps(as_data(about, found, well), indent=2) if as_json else as_text(about, found))
    return 0 if well else 1
