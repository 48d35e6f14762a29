"""Write files and folders completely or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollwise.errors import RunError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write a file or a folder to; it is renamed to `path` at the end of the block.

    If the block fails, what it wrote is removed and `path` stays as it was.

    Raises:
        RunError: The system refused to write, for example because the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)
        yield partial
        _sync(partial)
        _put_in_place(partial, path)
        _sync_entry(path.parent)
    except BaseException as error:
        _remove(partial)
        if _is_system_refusal(error):
            raise RunError(
                f"could not write {path}: {error}; nothing of it was kept, and what was there "
                "before still is"
            ) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all.

    Raises:
        RunError: The system refused to write.
    """
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _put_in_place(partial: Path, path: Path) -> None:
    """Rename `partial` to `path`; an existing folder is moved aside first."""
    if not path.is_dir():
        os.replace(partial, path)
        return
    aside = path.with_name(f".{path.name}.before")
    _remove(aside)
    os.replace(path, aside)
    try:
        os.replace(partial, path)
    except BaseException:
        os.replace(aside, path)
        raise
    _remove(aside)


def _is_system_refusal(error: BaseException) -> bool:
    """Say whether the system refused; safetensors wraps such errors in its own."""
    return isinstance(error, OSError) or type(error).__name__ == "SafetensorError"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync(path: Path) -> None:
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        _sync_entry(file)


def _sync_entry(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
