"""Write files and folders completely or not at all; keep a folder to one process at a time."""

import fcntl
import hashlib
import logging
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from rollwise.errors import RunError

LOCK = ".lock"
"""A file that is in a folder while a process writes there."""

CHECKSUMS = "checksums.txt"
"""In a folder: the SHA-256 of each file, as `sha256sum --check checksums.txt` reads it."""

_CHECKPOINT = re.compile(r"step-(\d{6,})")

_HELD: set[Path] = set()
"""The folders that this process has locked."""

log = logging.getLogger(__name__)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write a file or a folder to; it is renamed to `path` at the end of the block.

    If the block fails, what it wrote is removed and `path` stays as it was. A `RunError` says that
    the system refused to write, for example because the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)
        yield partial
        for entry in (partial, *partial.rglob("*")):  # for a file, only itself
            _sync(entry)
        _put_in_place(partial, path)
        _sync(path.parent)
    except BaseException as error:
        _remove(partial)
        # safetensors wraps the system's errors in its own.
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise RunError(
                f"could not write {path}: {error}; nothing was written, and what was there "
                "before is unchanged"
            ) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file as `written_whole` does."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_checksums(folder: Path, patterns: Iterable[str] = ("**/*",)) -> None:
    """Write `checksums.txt` into a folder: the SHA-256 of each file in it, or of some."""
    names = {str(p.relative_to(folder)) for pattern in patterns for p in folder.glob(pattern)}
    sums = _checksums(folder, sorted(name for name in names if (folder / name).is_file()))
    write_text(folder / CHECKSUMS, "".join(f"{found}  {name}\n" for name, found in sums.items()))


def damaged_files(folder: Path, within: str = "") -> list[str]:
    """List the files of a folder, `within` a part of it, that are not as its checksums say."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError):
        return [CHECKSUMS]
    wanted = {name: known for known, _, name in (line.partition("  ") for line in lines)}
    names = [name for name in wanted if name.startswith(within)]
    found = _checksums(folder, [name for name in names if (folder / name).is_file()])
    return [name for name in names if found.get(name) != wanted[name]]


def _checksums(folder: Path, names: Sequence[str]) -> dict[str, str]:
    def checksum(name: str) -> str:
        with (folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(4) as threads:  # hashing leaves other threads free to run
        return dict(zip(names, threads.map(checksum, names), strict=True))


def list_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints in a run's folder `checkpoints`, oldest first."""
    found = [p for p in folder.glob("step-*") if _CHECKPOINT.fullmatch(p.name) and p.is_dir()]
    return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is created if missing and then kept if used.

    The lock is the system's (`fcntl`): it ends with its process, however that ends, and forks do
    not hold it. Where the file system has no locks, a warning says so. A `RunError` says that
    another process has locked the folder, or that it cannot be made.
    """
    path, held = folder / LOCK, folder.absolute()
    if held in _HELD:  # the system's lock is of the whole process
        raise RunError(f"{folder} is in use by another thread of this program")
    try:
        made = [p for p in (folder, *folder.parents) if not p.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _take_lock(path)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise RunError(f"cannot write to the folder {folder}: {error}") from None
    _HELD.add(held)
    try:
        yield
    finally:
        _HELD.discard(held)
        path.unlink(missing_ok=True)  # before the lock is released
        os.close(descriptor)
        with suppress(OSError):  # it holds something now
            for each in made:
                each.rmdir()


def is_locked(folder: Path) -> bool:
    """Return whether another process has locked a folder; this process must not hold the lock."""
    with suppress(OSError), (folder / LOCK).open("rb+") as file:
        return not _try_lock(file.fileno())
    return False  # there is no lock, or the file system has none


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _take_lock(path: Path) -> int:
    """Create a file if needed, and lock it; returns its descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            is_ours = _try_lock(descriptor)
        except OSError as error:
            log.warning("%s: no lock (%s); run one command at a time there", path.parent, error)
            return descriptor
        if not is_ours:
            holder = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise RunError(
                f"{path.parent} is in use by another command ({holder}); wait until that has "
                "ended, or give another --output"
            )
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return descriptor
        os.close(descriptor)  # another process has removed this file in the meantime


def _put_in_place(partial: Path, path: Path) -> None:
    """Rename `partial` to `path`; a folder that is there is moved aside first."""
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


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
