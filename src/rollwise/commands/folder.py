"""The folder of a command: new, or resumed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from rollwise.config import CommandConfig, make_settings
from rollwise.config.drawing import DrawConfig
from rollwise.errors import RunError
from rollwise.files import write_checksums
from rollwise.records import RunFolder, refuse_changes
from rollwise.records.final import unseal

Config = TypeVar("Config", bound=CommandConfig)


def settle(
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
        if not recorded.keys() <= kind.model_fields.keys():
            raise RunError(f"{path} is the folder of another command; give another --output")
    config = make_settings(kind, *([recorded] if resume else []), *layers)
    if isinstance(config, DrawConfig):
        from rollwise.models.saved import find_model  # which loads transformers

        # A run or a checkpoint stands for the model in it.
        model = config.model.model_copy(update={"path": find_model(config.model.path)})
        config = config.model_copy(update={"model": model})
    if recorded and changeable is not None:
        before = make_settings(kind, recorded)
        refuse_changes(path, before.model_dump(), config.model_dump(), changeable)
    return config


def write_settings(path: Path, config: CommandConfig) -> None:
    """Write the settings, unless the folder already has them; refuse a damaged folder.

    From now on, edits to them are noticed.
    """
    folder, settings = RunFolder(path), config.model_dump(mode="json")
    unseal(folder)
    if not folder.has_config or folder.read_config() != settings:
        folder.write_config(settings)
    write_checksums(path, ["config.json"])


def say_how_to_resume(command: str, path: Path, console: Console) -> None:
    """Say how to resume a command that was stopped, and where its report is, if it has one."""
    if not RunFolder(path).has_config:
        console.print("stopped before anything was written")
        return
    console.print(f"to resume: rollwise {command} --output {path} --resume", markup=False)
    if (page := path / "report.html").exists():
        console.print(f"report: {page}", markup=False)
