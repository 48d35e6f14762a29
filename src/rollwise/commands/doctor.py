"""`rollwise doctor`: what works here, why something does not, and what to type.

It loads no framework: what is installed is read from the packages' metadata and compared with the
releases that rollwise's own metadata admits. Only what holds in programs of a model is tried out.
"""

import json
import os
import platform
import subprocess
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from rollwise.commands.check import Check, State
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
from rollwise.errors import ConfigError
from rollwise.grading.memory_group import memory_group
from rollwise.grading.sandbox import Bubblewrap, ProgramLimits
from rollwise.grading.system_calls import filter_program

WIDTH = 80
MARKS: dict[State, str] = {"works": "ok", "missing": "--", "broken": "!!"}
TINKER_KEY = "TINKER_API_KEY"


EXTRAS = (
    ("train", "built-in model and learner", "train", ("torch", "transformers")),
    ("train", "adapters (LoRA)", "lora", ("peft",)),
    ("train", "optimizers in 8 bits", "bitsandbytes", ("bitsandbytes",)),
    ("train", "data sets of the hub", "hub", ("datasets",)),
    ("train", "TensorBoard", "trackers", ("tensorboard",)),
    ("train", "Weights & Biases", "trackers", ("wandb",)),
    ("engines", "transformers", "train", ("torch", "transformers")),
    ("engines", "vllm", "vllm", ("vllm",)),
    ("engines", "server", "server", ("openai",)),
    ("graders", "math", "train", ("math-verify",)),
    ("graders", "environment", "verifiers", ("verifiers",)),
    ("trainers", "TRL", "trl", ("trl",)),
    ("trainers", "verl", "verl", ("verl",)),
    ("trainers", "Tinker", "tinker", ("tinker",)),
)
"""What extras bring: part, name, the extra, and the packages that say whether it is here."""
TRACKERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}
OWN_ENVIRONMENT = {
    "vllm": "it needs an environment of its own (docs/engines.md)",
    "verl": "it needs an environment of its own (docs/verl.md)",
}


def checks() -> list[Check]:
    """Look at everything."""
    found = [_with_key(_extra(*entry)) for entry in EXTRAS]
    containment = list(_containment())
    code = containment[0]
    graders = [
        Check("graders", "exact", "works", "the text after the last ="),
        Check("graders", "function", "works", "your own function, in worker processes"),
        Check("graders", "code", code.state, "runs programs in the sandbox", code.fix),
    ]
    order = ("train", "engines", "graders", "trainers", "containment")
    return sorted([*found, *graders, *containment], key=lambda check: order.index(check.part))


def _extra(part: str, name: str, extra: str, packages: tuple[str, ...]) -> Check:
    wanted = {each.name: each for each in requirements(extra)}
    here, absent, wrong = [], [], []
    for package in packages:
        try:
            found = version(package)
        except PackageNotFoundError:
            absent.append(package)
            continue
        here.append(f"{package} {found}")
        if package in wanted and not wanted[package].specifier.contains(found, prereleases=True):
            wrong.append(f"{package} {found} is not {wanted[package].specifier}")
    install = f"pip install 'rollwise[{extra}]'"
    if absent:
        fix = "; ".join(filter(None, (install, OWN_ENVIRONMENT.get(extra, ""))))
        return Check(part, name, "missing", f"no {', no '.join(absent)}", fix)
    if wrong:
        return Check(part, name, "broken", "; ".join(wrong), install)
    return Check(part, name, "works", ", ".join(here))


@cache
def requirements(extra: str) -> tuple[Requirement, ...]:
    """Return what an extra of rollwise asks for on this machine, other extras resolved."""
    found: list[Requirement] = []
    for line in requires("rollwise") or ():
        each = Requirement(line)
        if each.marker is None or not each.marker.evaluate({"extra": extra}):
            continue
        if each.marker.evaluate({"extra": ""}):
            continue  # asked for without an extra
        if each.name == "rollwise":
            found += [one for other in sorted(each.extras) for one in requirements(other)]
        else:
            found.append(each)
    return tuple(found)


def _with_key(check: Check) -> Check:
    if check.name != "Tinker" or check.state != "works" or os.environ.get(TINKER_KEY):
        return check
    detail = f"{check.detail}, but no key in {TINKER_KEY}"
    return Check(check.part, check.name, "missing", detail, f"export {TINKER_KEY}=...")


def _containment() -> Iterator[Check]:
    """Try what holds in programs that nobody trusts."""
    part = "containment"
    try:
        limits = ProgramLimits(seconds=20, memory=512 * 1024**2, processes=16)
        with Bubblewrap().start("print(6 * 7)", limits) as process:
            out, error = process.communicate(timeout=60)
        if out.strip() == b"42":
            yield Check(part, "sandbox", "works", "bubblewrap runs a program")
        else:
            why = (error.decode(errors="replace").strip().splitlines() or ["no reply"])[-1]
            fix = "allow user namespaces, or name another sandbox (docs/grading.md)"
            yield Check(part, "sandbox", "broken", why, fix)
    except FileNotFoundError as error:
        yield Check(part, "sandbox", "missing", str(error), "install bubblewrap (Linux)")
    except (OSError, subprocess.TimeoutExpired) as error:
        fix = "see docs/grading.md"
        yield Check(part, "sandbox", "broken", str(error), fix)
    filtered = filter_program() is not None
    yield Check(
        part,
        "system calls (seccomp)",
        "works" if filtered else "missing",
        "filtered" if filtered else f"no filter for {platform.machine()}",
    )
    with memory_group(64 * 1024**2) as group:
        bounded = group is not None
    yield Check(
        part,
        "memory (control group)",
        "works" if bounded else "missing",
        "bounded for all processes of a program" if bounded else "bounded for each process alone",
        "" if bounded else "run where control groups can be made, if programs may be hostile",
    )


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
    path: Path,
    model: Path | None,
    gpu_gb: float | None,
    read_for_verl: Callable[[Mapping[str, Any]], TrainConfig],
) -> list[Check]:
    """Check a settings file, what its settings need, and whether a run fits into a GPU's memory.

    A file with a table `verl` is checked for verl, over whose GPUs the memory is not planned.

    Args:
        path: The file.
        model: The folder or `config.json` of the model, if it is not where the settings say.
        gpu_gb: The GPU's memory in GB; by default that of the GPU here.
        read_for_verl: Reads the settings of a file with a table `verl`, and raises a `ConfigError`
            at what verl cannot follow.

    Raises:
        ConfigError: The file cannot be read, or a setting is wrong.
    """
    from rollwise.commands.doctor_memory import memory_of

    given = read_toml(path)
    if "verl" in given:
        return _of_verl(path, read_for_verl(given), model is not None or gpu_gb is not None)
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
    needed = {name for run in runs for name in needs(run)}
    found = [check for check in checks() if (check.part, check.name) in needed]
    found += [check for run in runs for check in _files(run)]
    found += [check for run in runs for check in memory_of(run, model, gpu_gb)]
    detail = f"valid for `rollwise {command}`"
    if without:
        both = "`rollwise plan` and " if given.keys() <= PlanConfig.model_fields.keys() else ""
        lengths = "`steps`, `tokens` or `seconds`"
        detail = f"valid for {both}`rollwise compare` with `--rewards`; to train, add {lengths}"
    valid = Check("settings", path.name, "works", detail)
    return [valid, *dict.fromkeys(found)]


def _of_verl(path: Path, config: TrainConfig, memory_asked: bool) -> list[Check]:
    """Check what a run by verl needs: verl brings its own engines and learners."""
    detail = "valid for `rollwise verl`; the table [verl] itself is not checked"
    found = [Check("settings", path.name, "works", detail)]
    of_run = {(part, name) for part, name in needs(config) if part in ("graders", "containment")}
    needed = of_run | {("trainers", "verl"), *_trackers(config)}
    found += [check for check in checks() if (check.part, check.name) in needed]
    found += _files(config)
    if memory_asked:
        detail = "not planned: how verl shards a model over GPUs is not known here"
        found.append(Check("memory", "GPUs", "missing", detail))
    return found


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
    """Say what this machine is, without loading anything."""
    devices = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return {
        "rollwise": version("rollwise"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpus": len(devices),
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
        f"{about['cores']} cores, {gpus if about['gpus'] else 'no NVIDIA GPU'}"
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
    model: Path | None,
    gpu_gb: float | None,
    read_for_verl: Callable[[Mapping[str, Any]], TrainConfig],
) -> int:
    """Print what is found, of everything or of a settings file; returns the exit code.

    `of_file` describes the arguments.

    Raises:
        ConfigError: The model or the GPU is named without a settings file, or has no memory.
    """
    if path is None and (model is not None or gpu_gb is not None):
        raise ConfigError(
            "--memory and --gpu-gb go with a settings file: rollwise doctor FILE.toml"
        )
    if gpu_gb is not None and gpu_gb <= 0:
        raise ConfigError(f"--gpu-gb must be above 0, it is {gpu_gb:g}")
    if path is None:
        found = checks()
    else:
        try:
            found = of_file(path, model, gpu_gb, read_for_verl)
        except ConfigError as error:
            found = [Check("settings", path.name, "broken", str(error), "see docs/settings.md")]
    well = is_well(found, of_settings=path is not None)
    about = machine()
    print(json.dumps(as_data(about, found, well), indent=2) if as_json else as_text(about, found))
    return 0 if well else 1
