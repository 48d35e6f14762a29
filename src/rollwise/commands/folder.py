"""The folder of a command: new, or resumed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from rollwise.config import CommandConfig, make_settings
from rollwise.config.drawing import DrawConfig
from rollwise.config.sections import settings_of
from rollwise.errors import ConfigError, MissingDataError, RunError
from rollwise.files import CHECKSUMS, damaged_files, locked, write_checksums
from rollwise.records import RunFolder, refuse_changes
from rollwise.records.fingerprints import refuse_other_data

R = TypeVar("R")

Config = TypeVar("Config", bound=CommandConfig)

FINAL = (
    *("config.json", "summary.json", "metrics.jsonl", "samples/*.parquet", "visits/*.parquet"),
    *("problems.parquet", "problems/*", "responses/**/*.parquet", "prepared.parquet"),
    *("curves.jsonl", "comparison.json"),
)
"""The files of all commands that do not change once a command is done."""


@contextmanager
def folder_of(given: Path | None, resume: bool) -> Iterator[Path]:
    """Lock the folder of a command: the one that is given, or a new `runs/DATE-TIME`."""
    if resume and given is None:
        raise ConfigError("to resume a run, give its folder (--output)")
    path = given or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    number, second = 1, path.name
    while given is None:
        with suppress(FileExistsError):  # of another run that began in this second
            path.mkdir(parents=True)
            break
        path = path.with_name(f"{second}-{(number := number + 1)}")
    try:
        with locked(path):
            yield path
    finally:
        if given is None:
            with suppress(OSError):  # it holds something now
                path.rmdir()


def resolve(
    kind: type[Config],
    layers: Sequence[Mapping[str, Any]],
    path: Path,
    resume: bool,
    changeable: tuple[str, ...] | None = None,
) -> Config:
    """Make the settings of a command from layers; later ones win.

    The folder must be new or this command's. With `resume` the settings recorded there come first,
    and must be there. Only those that are `changeable` may differ from them; None allows any.
    """
    folder, recorded = RunFolder(path), {}
    if resume or not folder.is_new:
        if not folder.has_config:
            what = "there is nothing to resume" if resume else "it holds something else"
            raise RunError(f"{path}: {what}; give another --output")
        recorded = folder.read_config()
        if not recorded.keys() <= settings_of(kind).keys():
            raise RunError(f"{path} is the folder of another command; give another --output")
    config = make_settings(kind, *([recorded] if resume else []), *layers)
    if isinstance(config, DrawConfig):
        from rollwise.models.saved import find_model  # which loads transformers

        # A run or a checkpoint stands for the model in it.
        model = replace(config.model, path=find_model(config.model.path))
        config = replace(config, model=model)
    if recorded and changeable is not None:
        before = make_settings(kind, recorded)
        refuse_changes(path, asdict(before), asdict(config), changeable)
    return config


def write_settings(
    path: Path,
    config: CommandConfig,
    read: Mapping[str, Mapping[str, str]] | None = None,
    started: Mapping[str, str] | None = None,
) -> None:
    """Write the settings, what was `read` and the start, unless the folder already has them.

    A folder is refused if a file has changed since its command ended, or if it was begun with other
    data (`refuse_other_data`).
    """
    folder, settings = RunFolder(path), asdict(config)
    before = folder.read_about("read") if folder.has_config else {}
    now = {what: parts for what, parts in (read or {}).items() if parts}
    refuse_other_data(path, before, now)
    if changed := [name for name in damaged_files(path) if (path / name).exists()]:
        raise RunError(
            f"{path} is damaged: {', '.join(changed)} was modified after the command ended "
            "(checksums differ); restore it, or delete it to have it recreated"
        )
    (path / CHECKSUMS).unlink(missing_ok=True)
    now |= before
    if not folder.has_config or (folder.read_config(), before) != (settings, now):
        start = {} if folder.has_config else {"started": started or {}}
        folder.write_config(settings, read=now, **start)


def seal(path: Path, *further: str) -> None:
    """Write `checksums.txt` into a command's folder, because it is done; of `further` files too."""
    write_checksums(path, (*FINAL, *further))


def read_again(source: Callable[[], R], is_kept: bool, console: Console) -> R | None:
    """Read what may have been read before; None, and a note, if that is kept and out of reach."""
    try:
        return source()
    except MissingDataError as error:
        if not is_kept:
            raise
        console.print(
            f"note: {error}. What follows is of what was read before; it cannot be checked again",
            style="yellow",
            markup=False,
        )
        return None


def say_how_to_resume(command: str, path: Path, console: Console) -> None:
    """Print how to resume a command that was stopped, and where its report is, if it has one."""
    if not RunFolder(path).has_config:
        console.print("stopped before anything was written")
        return
    console.print(f"to resume: rollwise {command} --output {path} --resume", markup=False)
    if (page := path / "report.html").exists():
        console.print(f"report: {page}", markup=False)
