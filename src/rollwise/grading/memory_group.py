"""A control group that bounds the memory of a program.

It counts all that the program starts and all that the kernel holds for it. It can be had on Linux,
where this process may make groups below or beside its own.
"""

import functools
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 10.0
"""Seconds until what was killed has ended; a group in use for longer is left to later processes."""

_JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """Make a group whose processes hold at most `limit` bytes in all; at the end, end them.

    Yields:
        Its folder; None where no group can be made.

    Raises:
        OSError: It cannot be made, where others could.
    """
    parent = parent_group()
    if parent is None:
        yield None
        return
    with _made(parent, limit) as group:
        yield group


_numbers = itertools.count()


@contextmanager
def _made(parent: Path, limit: int) -> Iterator[Path]:
    group = parent / f"rollwise-{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    try:
        if (group / "memory.max").exists():
            values = {"memory.max": limit, "memory.swap.max": 0, "memory.oom.group": 1}
        else:  # memory alone first, for memory and swap together may not be less
            values = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
        for name, value in values.items():
            if name in ("memory.max", "memory.limit_in_bytes") or (group / name).exists():
                (group / name).write_text(str(value))
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """End what is left in a group, and remove it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            return group.rmdir()
        except OSError:  # what was killed is still ending
            time.sleep(0.002)


def joining(group: Path | None, command: list[str]) -> list[str]:
    """Return the command that enters a group and then becomes `command`."""
    return command if group is None else ["/bin/sh", "-c", _JOIN, str(group), *command]


def parent_group() -> Path | None:
    """Return the group in which this process may make others that bound memory, if there is one.

    Of version 1, its own. In version 2 a group with processes cannot have groups that bound memory,
    unless it is the root, so the one above comes next.
    """
    return _parent_group(os.getpid())


@functools.lru_cache(maxsize=1)
def _parent_group(pid: int) -> Path | None:  # `pid`, for a fork may be in another group
    with suppress(OSError):
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return next(filter(_can_hold, _candidates(groups, mounts)), None)
    return None


def _candidates(groups: list[str], mounts: list[str]) -> Iterator[Path]:
    """List this process's group in each hierarchy that may bound memory, and the one above it."""
    for line in groups:
        _, controllers, own = line.split(":", 2)
        for mount in mounts:
            before, _, after = mount.partition(" - ")
            root, folder = before.split()[3:5]
            kind, _, options = after.split(" ", 2)
            if controllers:
                is_there = kind == "cgroup" and "memory" in controllers and "memory" in options
            else:
                is_there = kind == "cgroup2"
            if not is_there or not Path(own).is_relative_to(root):
                continue
            group = Path(folder) / Path(own).relative_to(root)
            yield group
            if kind == "cgroup2" and group != Path(folder):
                yield group.parent


def _can_hold(group: Path) -> bool:
    """Whether processes can be put into a group made below; removes what earlier ones left."""
    controllers = group / "cgroup.subtree_control"
    try:
        if controllers.exists() and "memory" not in controllers.read_text().split():
            return False
        for left in group.glob("rollwise-*-*"):
            if not Path("/proc", left.name.split("-")[1]).exists():
                with suppress(OSError):  # of a process that another one cannot see
                    left.rmdir()
        with _made(group, 2**30) as trial:
            done = subprocess.run(joining(trial, ["/bin/sh", "-c", ":"]), check=False)
            return done.returncode == 0
    except OSError:
        return False
