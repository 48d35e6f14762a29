"""`rollwise doctor`: what works here, why something does not, and what to type.

No framework is loaded, except to read the model of a settings file: packages' metadata say which
releases are installed. Only the sandbox is tried, and with `--try` a step of a run.
"""

import json
import logging
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollwise.commands.described import method_in_words
from rollwise.config import KINDS, CompareConfig, PlanConfig, TrainConfig, make_settings, read_toml
from rollwise.config.model import BUILT_IN_NAMES, looks_local
from rollwise.config.reading import setting_types
from rollwise.config.sections import settings_of
from rollwise.config.step import wanted_columns
from rollwise.errors import ConfigError, RollwiseError
from rollwise.grading.sandbox import bubblewrap
from rollwise.grading.system_calls import filter_program
from rollwise.machine import usable_cores
from rollwise.records import flatten
from rollwise.releases import admitted
from rollwise.tasks import check_references, read_source
from rollwise.tasks.tables import is_path

TINKER_KEY = "TINKER_API_KEY"

EXTRAS = (
    ("train", "models and learner", "train", ("torch", "transformers")),
    ("train", "adapters (LoRA)", "lora", ("peft",)),
    ("train", "data sets of the hub", "hub", ("datasets",)),
    ("train", "TensorBoard", "trackers", ("tensorboard",)),
    ("train", "Weights & Biases", "trackers", ("wandb",)),
    ("engines", "transformers", "train", ("torch", "transformers")),
    ("engines", "vllm", "vllm", ("vllm",)),
    ("engines", "server", "server", ("openai",)),
    ("graders", "math", "train", ("math-verify",)),
    ("graders", "environment", "verifiers", ("verifiers",)),
    ("graders", "reasoning-gym", "reasoning-gym", ("reasoning_gym",)),
    ("trainers", "TRL", "trl", ("trl",)),
    ("trainers", "verl", "verl", ("verl",)),
    ("trainers", "Tinker", "tinker", ("tinker",)),
)
"""What extras bring: part, name, the extra, and the packages that say whether it is here."""

OWN_ENVIRONMENT = {"vllm": "docs/engines.md", "verl": "docs/verl.md"}
"""Extras that need an environment of their own, and the page that says why."""

TRACKERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}
SOURCES = ("data.train", "data.heldout", "data.sources", "benchmarks")

State = Literal["works", "missing", "broken"]
MARKS: dict[State, str] = {"works": "ok", "missing": "--", "broken": "!!"}

ReadForVerl = Callable[[Mapping[str, Any]], TrainConfig]


@dataclass(frozen=True)
class Check:
    """One thing that works here, or does not, and what to type, or to do.

    It is `missing` if it is not installed or not possible here, and `broken` if it is installed but
    does not work, or has a release that is not supported.
    """

    part: str
    name: str
    state: State
    detail: str
    fix: str = ""


def examine(
    path: Path | None,
    as_json: bool,
    try_it: bool,
    read_for_verl: ReadForVerl,
    gpu: float | None = None,
) -> int:
    """Print the findings on everything, or on a settings file; returns the exit code.

    `read_for_verl` reads the settings of a file with a table `verl`. Memory is predicted for a GPU
    of `gpu` GB, or else for this machine.
    """
    logging.getLogger("rollwise").setLevel(logging.WARNING)  # what is read is in the findings
    if gpu is not None and (path is None or not 0 < gpu < 1e6):
        raise ConfigError(
            "--gpu is a number of GB above 0, and goes with a settings file: "
            f"rollwise doctor FILE.toml --gpu 24; it is {gpu:g}"
        )
    if path is None:
        if try_it:
            raise ConfigError("--try goes with a settings file: rollwise doctor FILE.toml --try")
        found = checks()
        # Training is possible, and all installed packages have supported versions.
        broken = {(check.part, check.name) for check in found if check.state == "broken"}
        well = found[0].state == "works" and broken.isdisjoint(entry[:2] for entry in EXTRAS)
    else:
        try:
            found = _of_file(path, try_it, read_for_verl, gpu)
        except RollwiseError as error:
            found = [Check("settings", path.name, "broken", str(error), "see docs/settings.md")]
        well = all(check.state == "works" for check in found)
    package = Path(__file__).parents[1]
    about = {
        "rollwise": version("rollwise"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": usable_cores(),
        "gpus": len(list(Path("/dev").glob("nvidia[0-9]*"))),
        "pages": str(share if (share := package / "share").exists() else package.parents[1]),
    }
    if as_json:
        print(json.dumps({**about, "checks": [*map(asdict, found)], "ok": well}, indent=2))
    else:
        _show(about, found)
    return 0 if well else 1


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
        for width in (4, 26, None):
            table.add_column(width=width, overflow="fold")
        for check in of_part:
            fix = f"\n{check.fix}" if check.fix and check.state != "works" else ""
            table.add_row(f"  {MARKS[check.state]}", Text(check.name), Text(check.detail + fix))
        console.print(f"\n{part}")
        console.print(table)


def checks() -> list[Check]:
    """Check packages and the sandbox."""
    sandbox, filters = _sandbox(), filter_program() is not None
    calls = "filtered" if filters else f"no filter for {platform.machine()}"
    return [
        *(_extra(*entry) for entry in EXTRAS if entry[0] != "trainers"),
        Check("graders", "exact", "works", "the text after the last ="),
        Check("graders", "function", "works", "your own function, in worker processes"),
        Check("graders", "code", sandbox.state, "runs programs in the sandbox", sandbox.fix),
        *(_extra(*entry) for entry in EXTRAS if entry[0] == "trainers"),
        sandbox,
        Check("containment", "system calls (seccomp)", "works" if filters else "missing", calls),
    ]


def _extra(part: str, name: str, extra: str, packages: tuple[str, ...]) -> Check:
    install = f"pip install 'rollwise[{extra}]'"
    here, wrong = [], []
    for package in packages:
        try:
            here.append(f"{package} {(found := version(package))}")
        except PackageNotFoundError:
            if page := OWN_ENVIRONMENT.get(extra):
                install += f"; it needs an environment of its own ({page})"
            return Check(part, name, "missing", f"no {package}", install)
        if not (wanted := admitted(package, extra)).contains(found, prereleases=True):
            wrong.append(f"{package} {found} is not {wanted}")
    if wrong:
        return Check(part, name, "broken", "; ".join(wrong), install)
    if extra == "tinker" and not os.environ.get(TINKER_KEY):
        detail = f"{here[0]}, but no key in {TINKER_KEY}"
        return Check(part, name, "missing", detail, f"export {TINKER_KEY}=...")
    return Check(part, name, "works", ", ".join(here))


def _sandbox() -> Check:
    """Run a program in the sandbox."""
    name = ("containment", "sandbox")
    try:
        with bubblewrap("print(6 * 7)") as process:
            out, said = process.communicate(timeout=60)
    except FileNotFoundError as error:
        return Check(*name, "missing", str(error), "install bubblewrap (Linux)")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(*name, "broken", str(error), "see docs/grading.md")
    if out.strip() == b"42":
        return Check(*name, "works", "bubblewrap runs a program")
    why = (said.decode(errors="replace").strip().splitlines() or ["no reply"])[-1]
    return Check(*name, "broken", why, "allow user namespaces (docs/grading.md)")


def _of_file(
    path: Path, try_it: bool, read_for_verl: ReadForVerl, gpu: float | None
) -> list[Check]:
    given = read_toml(path)
    if "verl" in given:
        command, runs = "verl", [read_for_verl(given)]
        detail = "valid for `rollwise verl`; the table [verl] itself is not checked"
    else:
        fits = [name for name, kind in KINDS.items() if given.keys() <= settings_of(kind).keys()]
        names = flatten(given, ".").keys()
        whole = [name for name in fits if names <= setting_types(KINDS[name], given).keys()]
        command = next(iter(whole + fits), "train")
        detail, runs = _runs(command, given)
    found = [Check("settings", path.name, "works", detail), *_needed(command, runs)]
    if command in ("train", "compare") and all(check.state == "works" for check in found):
        found += _memory(runs, gpu)
    if not try_it:
        return found
    if command != "train":
        of = "verl" if command == "verl" else f"`{command}`"
        raise ConfigError(f"--try takes a step of `rollwise train`; the file is for {of}")
    if runs[0].backend.type == "tinker":
        raise ConfigError("--try takes a step on this machine, but this model runs on Tinker")
    if all(check.state == "works" for check in found):
        from rollwise.commands.doctor_try import try_step

        found.append(Check("memory", "one step", *try_step(runs[0])))
    return found


def _memory(runs: Sequence[TrainConfig], gpu: float | None) -> list[Check]:
    """Predict the memory of runs whose model is here."""
    from rollwise.commands.doctor_try import predict_memory

    about = ("model", "learner", "engine", "data")
    each = {repr([getattr(run, name) for name in about]): run for run in runs}
    local = (
        run
        for run in each.values()
        if run.backend.type == "local"
        and (run.model.path in BUILT_IN_NAMES or Path(run.model.path).expanduser().is_dir())
    )
    return list(
        dict.fromkeys(Check("memory", "prediction", *predict_memory(run, gpu)) for run in local)
    )


def _runs(command: str, given: dict[str, Any]) -> tuple[str, list[Any]]:
    """Describe what settings are valid for; return those of each run that needs something here."""
    lengths = {"steps", "tokens", "seconds", "rewards"}
    replayed = command == "compare" and not given.keys() & lengths
    config = make_settings(KINDS[command], given, {"rewards": "recorded"} if replayed else {})
    detail, runs = f"valid for `rollwise {command}`", [config]
    if isinstance(config, TrainConfig):
        detail += f"; {method_in_words(config, given)}"
    if isinstance(config, CompareConfig):
        config.check_methods()
        runs = [*config.each().values()]
    if isinstance(config, PlanConfig) or getattr(config, "rewards", None):
        runs = []  # nothing is trained
    for run in runs:
        if isinstance(run, TrainConfig):
            run.check_engine()
    if replayed:
        detail += " with `--rewards`; to train, add `steps`, `tokens` or `seconds`"
    return detail, runs


def _needed(command: str, runs: Sequence[Any]) -> list[Check]:
    """Check what runs need, and the files that they name."""
    settings = [flatten(asdict(run), ".") for run in runs]
    needed = {each for run in settings for each in _needs(run)}
    if command == "verl":  # which brings its own engines and learners
        kept = ("graders", "containment", *TRACKERS.values())
        needed = {each for each in needed if {*each} & {*kept}} | {("trainers", "verl")}
    found = [check for check in checks() if (check.part, check.name) in needed]
    for run, own in zip(runs, settings, strict=True):
        found += _check_model(run.model.path)
        sources = _sources(own)
        found += [_check_file(run, source) for source in sources if is_path(source)]
    found = list(dict.fromkeys(found))
    if command in ("train", "compare") and all(check.state == "works" for check in found):
        from rollwise.commands.doctor_problems import check_problems

        about = ("data", "evaluation", "model", "grading", "plugin_folder", "prompts", "engine")
        each = {repr([getattr(run, name) for name in about]): run for run in runs}
        found += [Check("run", *one) for run in each.values() for one in check_problems(run)]
    return list(dict.fromkeys(found))


def _needs(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield part and name of each check that a run's settings depend on."""
    hosted = settings.get("backend.type") == "tinker"
    grading = settings["grading.type"]
    runs_code = grading == "code" and not settings["grading.uncontained"]
    of_hub = ("/" in s and not is_path(s) and not Path(s).exists() for s in _sources(settings))
    table = (
        ("train", "models and learner", True),
        ("trainers", "Tinker", hosted),
        ("engines", settings["engine.type"], not hosted),
        ("train", "adapters (LoRA)", not hosted and settings.get("model.lora_rank")),
        ("graders", grading, grading != "code" or runs_code),
        ("containment", "sandbox", runs_code),
        ("train", "data sets of the hub", any(of_hub)),
        *(("train", TRACKERS.get(t, t), True) for t in settings.get("records.trackers", ())),
    )
    yield from ((part, name) for part, name, needed in table if needed)


def _sources(settings: Mapping[str, Any]) -> list[str]:
    named = [settings.get(name) or [] for name in SOURCES]
    texts = [s for each in named for s in ([each] if isinstance(each, str) else each)]
    return [text.partition("=")[2] or text for text in texts]  # a benchmark may be name=file


def _check_model(path: str) -> list[Check]:
    """Read what a model's files say of it, if they are here; this loads transformers."""
    if path in BUILT_IN_NAMES or not (looks_local(path) or _is_cached(path)):
        return []
    if looks_local(path) and not Path(path).expanduser().is_dir():
        return [Check("model", path, "missing", "no such folder")]
    try:
        from rollwise.models.saved import describe_ends

        return [Check("model", path, "works", describe_ends(path))]
    except (ImportError, RollwiseError) as error:
        return [Check("model", path, "broken", str(error))]


def _is_cached(name: str) -> bool:
    """Return whether the hub's cache has a model."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _check_file(config: Any, source: str) -> Check:
    """Read the problems of a file as the command would."""
    if not Path(source).expanduser().exists():
        return Check("data", source, "missing", "no such file")
    try:
        data = config.data
        heldout = getattr(data, "heldout", "") == source != getattr(data, "train", "")
        split = data.heldout_split if heldout else data.split
        found = read_source(source, data, split, wanted_columns(config))
        check_references(found.problems, config.grading.make(), source)
    except RollwiseError as error:
        return Check("data", source, "broken", str(error))
    if not found.problems:
        return Check("data", source, "broken", f"no usable problem: {found.describe()}")
    return Check("data", source, "works", found.describe())
