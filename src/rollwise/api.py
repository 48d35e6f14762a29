"""`rollwise.train`, `evaluate` and `compare`: the commands, from Python."""

import inspect
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rollwise.errors import ConfigError, DataError, RunError
from rollwise.files import list_checkpoints, write_text
from rollwise.plugins import (
    IN_MEMORY,
    in_memory,
    is_plugin,
    load_plugin,
    naming_plugins,
    plugin_folders,
    source_of,
)
from rollwise.records import Row, RunFolder
from rollwise.records.fingerprints import hash_files
from rollwise.records.folder import INITIAL_MODEL, INPUTS

__all__ = ["Result", "StopRun", "TrainResult", "compare", "evaluate", "train"]

Callback = Callable[[Row], object]
"""Called with the metrics of each step, as `metrics.jsonl` has them."""


class StopRun(Exception):
    """Raised in a callback of `rollwise.train`, ends the run after the step."""


@dataclass(frozen=True)
class Result:
    """What the folder of a command holds, read when it is asked for.

    Attributes:
        folder: The folder, such as `runs/first`; also of a command that ran before.
    """

    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        """The figures: `summary.json`, or `comparison.json` of a comparison."""
        if (file := self.folder / "comparison.json").exists():
            compared: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return compared
        if (summary := RunFolder(self.folder).read_summary()) is None:
            raise RunError(f"there is no summary.json in {self.folder}: the command has not ended")
        return dict(summary)

    @property
    def report(self) -> Path:
        """The report, a page in HTML."""
        return self.folder / "report.html"


class TrainResult(Result):
    """What the folder of a training run holds."""

    @property
    def metrics(self) -> list[Row]:
        """A row for each step, for `pandas.json_normalize`; step 0 is before training."""
        return RunFolder(self.folder).read_metrics()

    @property
    def heldout(self) -> dict[str, dict[str, dict[str, float]]]:
        """Held-out figures: `["before"]` or `["after"]`, such as `["avg@8"]`, `["value"]`."""
        return {when: self.summary[when] for when in ("before", "after")}

    @property
    def model(self) -> Path:
        """The trained model and its tokenizer, in a folder for `from_pretrained`."""
        return list_checkpoints(self.folder / "checkpoints")[-1] / "model"


def train(
    config: str | Path | None = None,
    *,
    model: Any = None,
    tokenizer: Any = None,
    data: Any = None,
    reward: Any = None,
    callbacks: Iterable[Callback] = (),
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> TrainResult:
    """Train a model, as `rollwise train` does, or resume training it.

    Args:
        config: A TOML file with settings, which the other arguments override.
        model: A path, a name on the hub, or a model of `transformers`, of which a copy is trained.
        tokenizer: That of a model that is given as an object.
        data: A path, a name on the hub, a list of dictionaries, or a data set of `datasets` or
            data frame. `{"train": ..., "heldout": ...}` gives both, and other settings of `data`.
        reward: A grader's name (`"math"`, `"module:function"`), or a function or class in any form
            that `rollwise.grading.FunctionGrader` takes, which runs in this process.
        callbacks: Each is called with the metrics of step 0, the evaluation before training, and of
            each step; `row["heldout"]` is there where it was evaluated. `StopRun` raised in one
            ends the run there, evaluated, saved and reported; another exception too, and is raised.
        folder: The run's folder; `runs/DATE-TIME` by default. Where it has the same run already,
            that goes on, or its result is returned.
        resume: Take the settings that the folder records, and go on even if a callback stopped it.
        progress: Whether to print what the command prints.
        **settings: Any other setting as in the file: `steps=20`, `learner={"learning_rate": 1e-5}`.

    Raises:
        RollwiseError: What the command would say, such as a `ConfigError` for a wrong setting.
        KeyboardInterrupt: The run was interrupted; its note says how to resume it.
    """
    called, errors = tuple(callbacks), list[Exception]()

    def ends_after(row: Row) -> bool:
        try:
            for callback in called:
                callback(row)
        except Exception as error:  # of any kind, such as optuna.TrialPruned
            errors.append(error)
        return bool(errors)

    given = _given(settings, model, data, reward)
    path = _run("train", config, given, tokenizer, folder, resume, progress, ends_after=ends_after)
    for error in errors:
        if not isinstance(error, StopRun):
            raise error
    return TrainResult(path)


def evaluate(
    config: str | Path | None = None,
    *,
    model: Any = None,
    tokenizer: Any = None,
    data: Any = None,
    reward: Any = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Result:
    """Evaluate a model, as `rollwise evaluate` does.

    Arguments are those of `train`. `data` stands for the setting `benchmarks`: names, files, or the
    problems of one benchmark, which is called `data`. `model` may be the folder of a run. The
    result's `summary["benchmarks"]` has the figures of each.
    """
    given = _given(settings, model, None, reward)
    if data is not None:
        given |= {"benchmarks": [data] if isinstance(data, str | Path) else data}
    path = _run("evaluate", config, given, tokenizer, folder, resume, progress)
    return Result(path)


def compare(
    config: str | Path | None = None,
    *,
    methods: Mapping[str, Any] | Sequence[str] | None = None,
    model: Any = None,
    tokenizer: Any = None,
    data: Any = None,
    reward: Any = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Result:
    """Train methods with several seeds and compare them, as `rollwise compare` does.

    `model`, `data` and `reward` are those of `train`, the same for all methods; other settings of
    `train` go into `base={...}`. `methods` has names, `["single", "grpo"]`, or the settings of
    each, `{"GRPO": {"exit": {...}}, ...}`. Runs have processes of
    their own, so that a script must call this under `if __name__ == "__main__":`; where a function
    or class is given as an object, they follow each other in this one.
    """
    given: dict[str, Any] = {} if methods is None else {"methods": methods}
    base = _given(settings.pop("base", {}), model, data, reward)
    given |= {**settings, **({"base": base} if base else {})}
    return Result(_run("compare", config, given, tokenizer, folder, resume, progress))


def _given(settings: Mapping[str, Any], model: Any, data: Any, reward: Any) -> dict[str, Any]:
    """Put what has an argument of its own into its section of the settings."""
    from rollwise.config.base import merge, nested

    sections = [nested(item) for item in settings.items()]  # "learner.learning_rate" is a name too
    for name, key, value in (("model", "path", model), ("data", "train", data)):
        if value is not None:
            sections.append({name: value if isinstance(value, Mapping) else {key: value}})
    if reward is not None:
        sections.insert(0, {"grading": _grading(reward)})
    return merge(*sections)


def _grading(reward: Any) -> Mapping[str, Any]:
    if isinstance(reward, Mapping):
        return reward
    found = reward
    if isinstance(reward, str) and is_plugin(reward):
        found = load_plugin(reward, plugin_folders())
    if isinstance(found, str) or inspect.isclass(found):
        return {"type": reward}
    if not callable(found):  # an object of a grader's class
        reward = getattr(found, "reward", None) or getattr(found, "grade", None)
        if reward is None:
            raise ConfigError(
                "`reward` must be a grader's name, a function, or a class or object with "
                f"`grade(response, answer)`; it is {type(found).__name__}: {found!r:.100}"
            )
    return {"type": "function", "function": reward}


def _run(
    command: str,
    config: str | Path | None,
    given: Mapping[str, Any],
    tokenizer: Any,
    folder: str | Path | None,
    resume: bool,
    progress: bool,
    **more: Any,
) -> Path:
    """Run a command in its folder, with what the settings give as objects; returns the folder."""
    from rich.console import Console

    from rollwise.commands.folder import folder_of
    from rollwise.config import read_toml

    run = getattr(import_module(f"rollwise.commands.{command}"), command)
    console = Console(highlight=False, quiet=not progress)
    if not isinstance(config, str | Path | None):
        raise ConfigError(f"`config` must be the path of a TOML file; it is {config!r:.100}")
    file = read_toml(Path(config)) if config is not None else {}
    with folder_of(None if folder is None else Path(folder), resume) as path, naming_plugins():
        inputs = _Inputs(path, tokenizer)
        try:
            named = inputs.named("", given)
            with in_memory(inputs.objects):
                run([file, named], path, resume, console, **more)
        except KeyboardInterrupt as stop:
            stop.add_note(f"to resume: rollwise.{command}(folder={str(path)!r}, resume=True, ...)")
            raise
        finally:
            inputs.remove_unused()
    return path


class _Inputs:
    """Puts what settings give as objects into a command's folder, where the command reads it.

    So a run has all that it learned from, and resumes like any other. Of functions and classes only
    the source is kept; `objects` are they, by the names that the settings have for them.
    """

    def __init__(self, path: Path, tokenizer: Any) -> None:
        self._path, self._tokenizer = path.absolute(), tokenizer
        self._begun = RunFolder(path).has_config
        self._folder = self._path / INPUTS
        self.objects: dict[str, Any] = {}

    def named(self, name: str, value: Any) -> Any:
        """Return the value of the setting `name`, with text in place of each object in it."""
        if isinstance(value, Mapping):
            return {key: self.named(f"{name}.{key}".strip("."), of) for key, of in value.items()}
        if isinstance(value, Path):
            return str(value)
        if hasattr(value, "save_pretrained"):
            return self._keep(name, self._path / INITIAL_MODEL, partial(self._save, value))
        if hasattr(value, "tolist"):  # a number of NumPy's
            return value.tolist()
        if callable(value):
            return self._name_object(value)
        if hasattr(value, "iterrows"):  # a data frame
            value = value.to_dict("records")
        are_rows = isinstance(value, list) and value and isinstance(value[0], Mapping)
        if are_rows or hasattr(value, "column_names"):
            text = "".join(_json_line(name, number, row) for number, row in enumerate(value))
            file = self._folder / f"{name}.jsonl"
            kept = self._keep(name, file, partial(write_text, text=text))
            return [f"data={kept}"] if name == "benchmarks" else kept
        return value

    def _keep(self, name: str, path: Path, write: Callable[[Path], object]) -> str:
        """Write what is given as `name` to `path`; what a run has begun with must be the same."""
        self._folder.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=self._folder) as place:
            write(made := Path(place) / path.name)
            if not self._begun:
                _remove(path)
                made.rename(path)
            elif _hashed(made) != _hashed(path):
                raise RunError(
                    f"`{name}` is not what {self._path} was begun with: give the same again, or "
                    "another folder"
                )
        return str(path)

    def _save(self, model: Any, path: Path) -> None:
        if self._tokenizer is None:
            raise ConfigError("a model that is given as an object needs its `tokenizer` too")
        if hasattr(model, "peft_config"):
            raise ConfigError("give the model without adapters: `model.lora_rank` adds new ones")
        model.save_pretrained(path)
        self._tokenizer.save_pretrained(path)

    def _name_object(self, found: Any) -> str:
        name = own = f"{IN_MEMORY}{getattr(found, '__name__', type(found).__name__)}"
        while self.objects.setdefault(name, found) != found:
            name = f"{own}-{len(self.objects)}"
        write_text(self._folder / "code.py", "\n\n".join(map(source_of, self.objects.values())))
        return name

    def remove_unused(self) -> None:
        """Remove all of it, if the command was refused before it began."""
        if not RunFolder(self._path).has_config:
            _remove(self._folder)
            _remove(self._path / INITIAL_MODEL)


def _json_line(name: str, number: int, row: Any) -> str:
    try:
        return json.dumps(dict(row), default=lambda value: value.tolist()) + "\n"
    except (TypeError, ValueError, AttributeError):
        raise DataError(
            f"`{name}`, row {number} (from 0), must hold text, numbers, lists and dictionaries "
            f"alone; it is {row!r:.300}"
        ) from None


def _hashed(path: Path) -> str:
    return hash_files([path, *path.glob("*.safetensors"), *path.glob("tokenizer.json")])


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
