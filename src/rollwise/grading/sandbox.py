"""Running Python that nobody trusts: what contains it, and talking to what runs there.

Contained means: namespaces of its own for processes, mounts, network and communication (so it sees
no other process, no network, and of the files only the system's libraries and Python's own, which
it cannot write), no privileges, no environment, an empty folder in memory of bounded size, and the
system's limits on memory, processor time, processes and files.
"""

import itertools
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rollwise.errors import ConfigError
from rollwise.grading import contained

FOLDER = "/tmp"
"""Where a program runs, inside; the only place that it can write to."""

DISK = 64 * 1024**2
"""Bytes that a program may write, in all."""

MOST_REPLY = 4 * contained.MOST_OUTPUT
"""Bytes of one line from inside; JSON may need more than the output that it tells of."""

START_TIMEOUT = 30.0
"""Seconds for a sandbox to be ready."""


class Lost(Exception):
    """What runs inside has ended, took too long, or does not keep to the protocol."""


class Contained:
    """A script (`contained.py`) at work inside; a context manager that ends it.

    Args:
        command: What starts it, from the name of an empty folder; see `COMMANDS`.
        first: What it is to do.
        seconds: In which it must have answered all, from when it is ready.

    Raises:
        RuntimeError: It cannot start.
    """

    def __init__(
        self, command: Callable[[str], list[str]], first: Mapping[str, Any], seconds: float
    ) -> None:
        self._deadline = time.monotonic() + START_TIMEOUT
        self._unread = b""
        self._folder = tempfile.TemporaryDirectory(prefix="rollwise-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            command(self._folder.name),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder.name,
            env={},
            start_new_session=True,
        )
        self._stdin, self._stdout = _fileno(self._process.stdin), _fileno(self._process.stdout)
        os.set_blocking(self._stdin, False)
        try:
            self.ask({**first, "contained": command is not uncontained})
        except Lost:
            complaint = self._complaint()
            self.close()
            raise RuntimeError(f"the sandbox cannot start: {complaint}") from None
        self._deadline = time.monotonic() + seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that runs inside."""
        self._end()
        self._process.__exit__(None, None, None)
        self._folder.cleanup()

    def ask(self, message: Any) -> Any:
        """Send a message, and wait for the answer.

        Raises:
            Lost: None came.
        """
        self.send(message)
        return self.receive()

    def send(self, message: Any) -> None:
        """Send a message; if nobody reads it, `receive` will say so."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                self._wait(self._stdin, selectors.EVENT_WRITE)
                data = data[os.write(self._stdin, data) :]
        except BrokenPipeError:
            return

    def receive(self) -> Any:
        """Wait for a message.

        Raises:
            Lost: None came.
        """
        parts = [self._unread]
        size = 0
        while b"\n" not in parts[-1]:
            self._wait(self._stdout, selectors.EVENT_READ)
            parts.append(os.read(self._stdout, 65536))
            size += len(parts[-1])
            if not parts[-1] or size > MOST_REPLY:
                raise Lost("it ended" if not parts[-1] else "it said too much")
        line, _, self._unread = b"".join(parts).partition(b"\n")
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Lost("it said what is no JSON") from error

    def _complaint(self) -> str:
        self._end()
        lines = self._process.communicate()[1].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def _wait(self, file: int, event: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(file, event)
            if not selector.select(max(0.0, self._deadline - time.monotonic())):
                raise Lost("it took too long")

    def _end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _fileno(pipe: Any) -> int:
    return int(pipe.fileno())


# ---- What contains it ----


def unshared(folder: str) -> list[str]:
    """Contain by util-linux: new namespaces, a new root, then no privileges."""
    folders, files = [*map(shlex.quote, _folders())], _files()
    mounts = [f"mount --bind -o ro {path} .{path}" for path in folders]
    mounts += [f"mount --bind {path} .{path}" for path in files]
    made = [*folders, *(os.path.dirname(path) for path in files), "/.old", "/proc", FOLDER]
    links = [f"ln -s {target} .{path}" for path, target in _links()]
    script = [
        "set -e; umask 022; PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        f"mount -t tmpfs -o mode=755,size={DISK},nr_inodes=4096 tmpfs {shlex.quote(folder)}",
        f"cd {shlex.quote(folder)}; mkdir -p {' '.join('.' + path for path in made)}",
        f"touch {' '.join('.' + path for path in files)}; chmod 1777 .{FOLDER}",
        *mounts,
        *links,
        "mount --rbind /proc ./proc",  # which `umount` reads
        f"pivot_root . .old; cd {FOLDER}; umount -l /.old; umount -l /proc; rmdir /.old /proc",
        'exec "$@"',
    ]
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [
        *(_found("setpriv"), "--pdeathsig", "KILL"),
        *(_found("unshare"), "--mount", "--net", "--ipc", "--uts", "--pid", "--fork"),
        *("--kill-child", *own_user),
        *("/bin/sh", "-c", "\n".join(script), "sh"),
        *_unprivileged(),
    ]


def bubblewrapped(folder: str) -> list[str]:
    """Contain by bubblewrap, which Flatpak uses."""
    parents = {str(parent) for path in _folders() for parent in Path(path).parents} - {"/"}
    binds = [word for path in sorted(parents) for word in ("--dir", path)]
    binds += [word for path in _folders() for word in ("--ro-bind", path, path)]
    links = [word for path, target in _links() for word in ("--symlink", target, path)]
    own_user = [] if os.geteuid() == 0 else ["--unshare-user"]
    return [
        *(_found("bwrap"), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--die-with-parent", *own_user, *binds, *links),
        *("--ro-bind-try", _LIBRARIES, _LIBRARIES, "--dev", "/dev", "--remount-ro", "/dev"),
        *("--perms", "1777", "--size", str(DISK), "--tmpfs", FOLDER),
        *("--remount-ro", "/", "--chdir", FOLDER, "--"),
        *_unprivileged(),
    ]


def uncontained(folder: str) -> list[str]:
    """Contain by nothing but the system's limits, which do not hold root in all."""
    return _python()


COMMANDS = {"bubblewrap": bubblewrapped, "unshare": unshared}
"""What contains, the better ones first."""


def find_containment() -> Callable[[str], list[str]]:
    """Return what contains here, having tried it.

    Raises:
        ConfigError: Nothing does; says what was tried.
    """
    tried = []
    for name, command in COMMANDS.items():
        try:
            if (complaint := _probe(command)) is None:
                return command
        except FileNotFoundError as missing:
            complaint = str(missing)
        tried.append(f"{name}: {complaint}")
    raise ConfigError(
        "code cannot be graded safely here, for nothing contains the responses' programs "
        f"({'; '.join(tried)}). Install bubblewrap, or let this process make namespaces; or, where "
        "the machine itself may be lost, run them uncontained (`uncontained=True`)"
    )


def _probe(command: Callable[[str], list[str]]) -> str | None:
    """Try a way to contain; what it complains of, or None where it works."""
    first = {"mode": "functions", "code": _PROBE, "limits": {}}
    call = {"call": "escapes", "args": [], "kwargs": ["dict", []]}
    try:
        with Contained(command, first, START_TIMEOUT) as inside:
            inside.receive()
            reply = inside.ask(call)
    except (Lost, RuntimeError) as error:
        return str(error)
    escapes = contained.decode(reply.get("value", "it fails"))
    return f"it leaves open {escapes}" if escapes else None


_PROBE = """
import os, socket

def escapes():
    found = []
    if os.getppid() > 1:
        found.append("processes")
    if any(name != "lo" for _, name in socket.if_nameindex()):
        found.append("the network")
    if os.path.exists("/etc/passwd"):
        found.append("files")
    if os.access("/usr", os.W_OK):
        found.append("writing")
    return ", ".join(found)
"""


def _python() -> list[str]:
    """Build the command that runs `contained.py` with the standard library alone."""
    source = Path(contained.__file__).read_text()
    return [_executable(), "-I", "-S", "-B", "-c", source]


def _executable() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _unprivileged() -> list[str]:
    """Build the same for one that may still do anything, and is to be allowed nothing.

    The limit on processes goes by user and does not hold root, so each sandbox has its own user.
    """
    user = str(20000 + (os.getpid() * 1009 + next(_starts)) % 40000)
    other = ["--reuid", user, "--regid", user, "--clear-groups"] if os.geteuid() == 0 else []
    setpriv = _found("setpriv")
    return [
        *(setpriv, *other, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
        *(setpriv, "--pdeathsig", "KILL"),  # forgotten where the user changes
        *_python(),
    ]


_starts = itertools.count()


def _folders() -> Iterator[str]:
    """List the folders to be read: the system's programs and libraries, and Python's own."""
    roots = [
        "/usr",
        *(path for path in _SYSTEM if not os.path.islink(path) and os.path.isdir(path)),
    ]
    yield from roots
    prefixes = {os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.base_exec_prefix)}
    for prefix in sorted(prefixes):
        if not any(Path(prefix).is_relative_to(root) for root in roots):
            yield prefix


_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")


def _links() -> Iterator[tuple[str, str]]:
    """List the system's folders that lead to others."""
    for path in _SYSTEM:
        if os.path.islink(path):
            yield path, os.readlink(path)


_LIBRARIES = "/etc/ld.so.cache"
"""Where the system's libraries are."""


def _files() -> list[str]:
    """List the single files that programs need."""
    wanted = ("/dev/null", "/dev/zero", "/dev/urandom", _LIBRARIES)
    return [path for path in wanted if os.path.exists(path)]


def _found(name: str) -> str:
    path = shutil.which(name, path=os.defpath + ":/usr/sbin:/sbin:" + os.environ.get("PATH", ""))
    if path is None:
        raise FileNotFoundError(f"no program {name}")
    return path
