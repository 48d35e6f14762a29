"""The folder of an evaluation or a preparation: new, or resumed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from rollwise.config import EvaluateConfig, PrepareConfig, is_recorded_by, make_settings
from rollwise.errors import RunError
from rollwise.models.saved import find_model
from rollwise.records import RunFolder, refuse_changes

Config = TypeVar("Config", EvaluateConfig, PrepareConfig)


def resolve_settings(
    kind: type[Config],
    layers: Sequence[Mapping[str, Any]],
    path: Path,
    resume: bool,
    changeable: tuple[str, ...] = (),
) -> Config:
    """Resolve the settings of a command, and check that the folder `path` is empty or has the same.

    The same command with the same folder resumes where it stopped.

    Args:
        kind: The class of the settings.
        layers: Settings; later layers win.
        path: The folder.
        resume: Start from the settings recorded in the folder, which must exist.
        changeable: Settings that may differ from those recorded.

    Raises:
        ConfigError: A bad setting, or one that differs from the folder's.
        RunError: The folder holds something else, or, with `resume`, nothing.
    """
    folder = RunFolder(path)
    if not resume and folder.is_new:
        return _with_model_found(make_settings(kind, *layers))
    if not folder.has_config:
        what = "there is nothing to resume" if resume else "it holds something else"
        raise RunError(f"{path}: {what}; give another --output")
    recorded = folder.read_config()
    if not is_recorded_by(kind, recorded):
        raise RunError(f"{path} is the folder of another command; give another --output")
    before = make_settings(kind, recorded)
    now = _with_model_found(make_settings(kind, *([recorded] if resume else []), *layers))
    refuse_changes(path, before.model_dump(), now.model_dump(), changeable)
    return now


def _with_model_found(config: Config) -> Config:
    """Replace the folder of a run or a checkpoint by the path of the model in it."""
    model = config.model.model_copy(update={"path": find_model(config.model.path)})
    return config.model_copy(update={"model": model})


def write_settings(folder: RunFolder, config: EvaluateConfig | PrepareConfig) -> None:
    """Write the settings, unless the folder already has them."""
    settings = config.model_dump(mode="json")
    if not folder.has_config or folder.read_config() != settings:
        folder.write_config(settings)


def settings_note(config: EvaluateConfig | PrepareConfig) -> dict[str, str]:
    """Return the settings as a note for the file of problems, see `check_note`."""
    return {"settings": json.dumps(config.model_dump(mode="json"))}


def check_note(
    problems: Path, config: EvaluateConfig | PrepareConfig, changeable: tuple[str, ...]
) -> None:
    """Refuse settings that responses to the problems in a file were not drawn with.

    `config.json` says what they were, but may have been edited since.

    Raises:
        ConfigError: A setting differs.
        RunError: The file cannot be read.
    """
    try:
        noted = (pq.read_schema(problems).metadata or {}).get(b"settings")
        before = make_settings(type(config), json.loads(noted)) if noted else config
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(f"cannot read the problems in {problems}: {error}") from None
    refuse_changes(problems, before.model_dump(), config.model_dump(), changeable)


def resume_hint(command: str, path: Path) -> str:
    """Say how to resume a command that was interrupted."""
    if not (path / "config.json").exists():
        return "stopped before anything was written"
    return f"stopped; to resume: rollwise {command} --output {path} --resume"
