"""`rollwise report`: write the reports of runs, evaluations and comparisons again."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rich.console import Console

from rollwise.commands.show import say
from rollwise.config import KINDS
from rollwise.config.sections import settings_of
from rollwise.errors import RunError
from rollwise.files import is_locked
from rollwise.records import RunFolder
from rollwise.reports import write_report


def report(paths: Sequence[Path], console: Console) -> None:
    """Write `report.html` into each folder, or into all of a command below one that is of none.

    A `RunError` says which could not be written and why, after all others have been.
    """
    refused = []
    for folder in (folder for path in paths for folder in _folders(path)):
        try:
            say(console, [f"report: {_write(folder)}"])
        except RunError as error:
            refused.append(str(error))
    if refused:
        raise RunError("\n".join(refused))


def _folders(path: Path) -> list[Path]:
    """List the folders to report on: `path`, or those below it that are inside no other."""
    if RunFolder(path).has_config:
        return [path]
    holding = {
        file.parent for name in ("config.json", "metrics.jsonl") for file in path.rglob(name)
    }
    known = [
        folder for folder in sorted(holding) if _command(folder) not in ("", "prepare", "plan")
    ]
    return [folder for folder in known if not {*folder.parents} & {*known}] or [path]


def _command(path: Path) -> str:
    """Return the command that a folder is of; "" if it has no settings of any."""
    try:
        recorded = RunFolder(path).read_config()
    except RunError:
        return ""
    fits = (name for name, kind in KINDS.items() if recorded.keys() <= settings_of(kind).keys())
    return next(fits, "train")


def _write(path: Path) -> Path:
    command = _command(path)
    if command in ("evaluate", "compare"):
        page: Path = import_module(f"rollwise.commands.{command}").write_report_again(path)
        return page
    if command in ("prepare", "plan"):
        raise RunError(f"{path} is of `rollwise {command}`, which has no report.html")
    if not command and not (path / "metrics.jsonl").exists():
        raise RunError(f"there is no run in {path}, nor an evaluation or a comparison")
    return write_report(path, under_way=is_locked(path))
