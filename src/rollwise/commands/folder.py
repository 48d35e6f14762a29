"""The folder of a command: new, or resumed."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from rollwise.config import CommandConfig, is_recorded_by
from rollwise.errors import RunError
from rollwise.records import RunFolder
from rollwise.records.final import unseal
from rollwise.signals import Terminated


def recorded_settings(kind: type[CommandConfig], path: Path, resume: bool) -> dict[str, Any]:
    """Return the settings that a command recorded in its folder; {} if the folder is new.

    Args:
        kind: The class of the settings.
        path: The folder.
        resume: Whether there must be some.

    Raises:
        RunError: The folder holds something else, or, with `resume`, nothing.
    """
    folder = RunFolder(path)
    if not resume and folder.is_new:
        return {}
    if not folder.has_config:
        what = "there is nothing to resume" if resume else "it holds something else"
        raise RunError(f"{path}: {what}; give another --output")
    recorded = folder.read_config()
    if not is_recorded_by(kind, recorded):
        raise RunError(f"{path} is the folder of another command; give another --output")
    return recorded


def write_settings(folder: RunFolder, config: CommandConfig) -> None:
    """Write the settings, unless the folder already has them.

    Raises:
        RunError: What was final in the folder is damaged.
    """
    unseal(folder)
    settings = config.model_dump(mode="json")
    if not folder.has_config or folder.read_config() != settings:
        folder.write_config(settings)


def stopped(command: str, path: Path, console: Console, stop: KeyboardInterrupt) -> bool:
    """Say how to resume a command that was interrupted; returns False, as it has not finished.

    Raises:
        Terminated: SIGTERM or SIGHUP stopped it.
    """
    hint = f"stopped; to resume: rollwise {command} --output {path} --resume"
    if not RunFolder(path).has_config:
        hint = "stopped before anything was written"
    with suppress(OSError):  # after SIGHUP there is no terminal
        console.print(hint, markup=False)
    if isinstance(stop, Terminated):
        raise stop
    return False
