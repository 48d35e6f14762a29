"""The folder of a command: new, or resumed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from rollwise.config import CommandConfig, EvaluateConfig, PrepareConfig, make_settings
from rollwise.errors import RunError
from rollwise.records import RunFolder, refuse_changes
from rollwise.records.final import unseal
from rollwise.signals import Terminated

Config = TypeVar("Config", bound=CommandConfig)


def settle(
    kind: type[Config],
    layers: Sequence[Mapping[str, Any]],
    path: Path,
    resume: bool,
    changeable: tuple[str, ...] | None = None,
) -> Config:
    """Make the settings of a command from layers and, with `resume`, those of its folder.

    Args:
        kind: The class of the settings.
        layers: Settings; later layers win.
        path: The folder, which must be new or this command's.
        resume: Begin with the settings recorded in the folder, which must be there.
        changeable: Settings that may differ from those recorded; None for any.
    """
    folder, recorded = RunFolder(path), {}
    if resume or not folder.is_new:
        if not folder.has_config:
            what = "there is nothing to resume" if resume else "it holds something else"
            raise RunError(f"{path}: {what}; give another --output")
        recorded = folder.read_config()
        if not recorded.keys() <= kind.model_fields.keys():
            raise RunError(f"{path} is the folder of another command; give another --output")
    config = make_settings(kind, *([recorded] if resume else []), *layers)
    if isinstance(config, EvaluateConfig | PrepareConfig):
        from rollwise.models.saved import find_model  # which loads transformers

        # A run or a checkpoint stands for the model in it.
        model = config.model.model_copy(update={"path": find_model(config.model.path)})
        resolved: Any = config.model_copy(update={"model": model})
        config = resolved
    if recorded and changeable is not None:
        before = make_settings(kind, recorded)
        refuse_changes(path, before.model_dump(), config.model_dump(), changeable)
    return config


def write_settings(path: Path, config: CommandConfig) -> None:
    """Write the settings, unless the folder already has them; refuse what is damaged there."""
    folder, settings = RunFolder(path), config.model_dump(mode="json")
    unseal(folder)
    if not folder.has_config or folder.read_config() != settings:
        folder.write_config(settings)


def stopped(command: str, path: Path, console: Console, stop: KeyboardInterrupt) -> bool:
    """Say how to resume a command; return False, or raise what was no Ctrl-C."""
    hint = f"stopped; to resume: rollwise {command} --output {path} --resume"
    if not RunFolder(path).has_config:
        hint = "stopped before anything was written"
    with suppress(OSError):  # after SIGHUP there is no terminal
        console.print(hint, markup=False)
    if isinstance(stop, Terminated):
        raise stop
    return False
