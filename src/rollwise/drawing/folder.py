"""The folder of an evaluation or a preparation: begun, or gone on with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rollwise.config import EvaluateConfig, PrepareConfig, make_settings
from rollwise.drawing.drawer import find_model
from rollwise.errors import RunError
from rollwise.records import RunFolder, refuse_changes

Config = TypeVar("Config", EvaluateConfig, PrepareConfig)

_UNFINISHED = ".config.json.partial"
"""What a run leaves that was killed while it wrote its settings."""


def settle(
    kind: type[Config],
    layers: Sequence[Mapping[str, Any]],
    path: Path,
    resume: bool,
    changeable: tuple[str, ...] = (),
) -> Config:
    """Settle the settings of a command and see that the folder `path` is theirs, or empty.

    The same command with the same folder goes on where it was.

    Args:
        kind: Of the settings.
        layers: Settings, later ones win.
        path: The folder.
        resume: Take the settings recorded in the folder, which must be there, below `layers`.
        changeable: Settings that may differ from those recorded.

    Raises:
        ConfigError: A bad setting, or one that differs from the folder's.
        RunError: The folder holds something else, or, with `resume`, nothing.
    """
    folder = RunFolder(path)
    if not resume and _is_empty(path):
        return _with_model_found(make_settings(kind, *layers))
    if not (path / "config.json").exists():
        what = "there is nothing to go on with" if resume else "it holds something else"
        raise RunError(f"{path}: {what}; give another --output")
    recorded = folder.read_config()
    if not recorded.keys() <= kind.model_fields.keys():
        raise RunError(f"{path} is the folder of another command; give another --output")
    before = make_settings(kind, recorded)
    now = _with_model_found(make_settings(kind, *([recorded] if resume else []), *layers))
    refuse_changes(path, before.model_dump(), now.model_dump(), changeable)
    return now


def _with_model_found(config: Config) -> Config:
    """Write down which model is meant, where a run's folder or a checkpoint was named."""
    model = config.model.model_copy(update={"path": find_model(config.model.path)})
    return config.model_copy(update={"model": model})


def record(folder: RunFolder, config: EvaluateConfig | PrepareConfig) -> None:
    """Write the settings down, unless they are."""
    settings = config.model_dump(mode="json")
    if not (folder.path / "config.json").exists() or folder.read_config() != settings:
        folder.write_config(settings)


def how_to_go_on(command: str, path: Path) -> str:
    """Say how a command that was interrupted is gone on with."""
    if not (path / "config.json").exists():
        return "stopped before anything was written"
    return f"stopped; to go on: rollwise {command} --output {path} --resume"


def _is_empty(path: Path) -> bool:
    if not path.exists():
        return True
    return path.is_dir() and all(entry.name == _UNFINISHED for entry in path.iterdir())
