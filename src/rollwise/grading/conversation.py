"""Talking to `program.py` inside a sandbox; and testing whether a sandbox works here."""

import functools
import inspect
import json
import math
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rollwise.errors import ConfigError
from rollwise.grading import mirrors, objects, plain_data, program, running
from rollwise.grading.program_usage import ProgramUsage
from rollwise.grading.sandbox import DISK, ProgramLimits, bubblewrap, no_sandbox

LONGEST_OUTPUT = 4 * program.MOST_OUTPUT
"""Bytes of a line with what a program printed; JSON may need more than the output that it holds."""

LONGEST_REPLY = 8 * 1024**2
"""Bytes of any other line from inside."""

STEP = 0.05
"""Seconds between two looks at what a program has taken."""

START_TIMEOUT = 30.0
"""Seconds for a sandbox to be ready."""


class NoReply(Exception):
    """What runs inside has ended, took too long, or does not keep to the protocol."""


class Conversation:
    """Messages to and from a process by unbuffered pipes, each a line of JSON, within limits."""

    def __init__(self, process: "subprocess.Popen[bytes]", seconds: float, memory: int) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._pid, self._memory = process.pid, memory
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        self._unread = bytearray()
        self.extend(seconds)

    def extend(self, seconds: float) -> None:
        """Let it take this many seconds from now on."""
        self._usage = ProgramUsage(self._pid, seconds, self._memory)
        self._looked = self._waited = time.monotonic()

    def ask(self, message: Any, longest: int = LONGEST_REPLY) -> Any:
        """Send a message, and `receive` the answer."""
        self.send(message)
        return self.receive(longest)

    def call(self, name: str, *args: Any) -> Any:
        """Call a function of a program with plain data, as `encode` writes it; see `Peer`."""
        return self.ask({"do": "entry", "on": None, "args": [name, *args], "kwargs": {}})

    def send(self, message: Any) -> None:
        """Send a message; if nobody reads it, `receive` will raise."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                self._wait(self._stdin, selectors.EVENT_WRITE)
                data = data[os.write(self._stdin, data) :]
        except BrokenPipeError:
            return

    def receive(self, longest: int = LONGEST_REPLY) -> Any:
        """Wait for a message of at most `longest` bytes; NoReply if none comes."""
        line = self._unread
        while b"\n" not in line[-65536:]:
            self._wait(self._stdout, selectors.EVENT_READ)
            part = os.read(self._stdout, 65536)
            line += part
            if not part or len(line) > longest:
                raise NoReply("it sent too much output" if part else "it ended")
        line, _, self._unread = line.partition(b"\n")
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NoReply("its message is not JSON") from error

    def _wait(self, file: int, event: int) -> None:
        self._usage.skip(time.monotonic() - self._waited)
        with selectors.DefaultSelector() as selector:
            selector.register(file, event)
            while True:
                if time.monotonic() - self._looked >= STEP:
                    if not self._usage.left():
                        raise NoReply("it took too long, or too much memory")
                    self._looked = time.monotonic()
                if selector.select(STEP):
                    self._waited = time.monotonic()
                    return


@contextmanager
def sandboxed(limits: ProgramLimits, first: Mapping[str, Any]) -> Iterator[Conversation]:
    """Have `program.py` do in a sandbox what `first` says; `limits.seconds` begin when it is ready.

    A RuntimeError says why it cannot start.
    """
    start = no_sandbox if limits.uncontained else bubblewrap
    folders = first.get("folders", ())
    with start(_script(first["mode"]), folders) as process:
        talk = Conversation(process, START_TIMEOUT, limits.memory + DISK)
        try:
            further = {"limits": _rlimits(limits), "isolated": not limits.uncontained}
            talk.ask({**first, **further})
        except NoReply:
            process.kill()
            said = process.communicate()[1].decode("utf-8", "replace").strip().splitlines()
            why = said[-1] if said else f"exit code {process.returncode}"
            raise RuntimeError(f"the sandbox cannot start: {why}") from None
        talk.extend(limits.seconds)
        yield talk


@functools.cache
def _script(mode: str) -> str:
    """Return the text of `program.py`, with the modules that it imports in a mode before it."""
    needed = {"program": [], "functions": [plain_data, mirrors, objects]}
    needed["tests"] = [*needed["functions"], running]
    modules = {module.__name__: inspect.getsource(module) for module in needed[mode]}
    load = (
        "import sys, types\n"
        f"for name, text in {modules!r}.items():\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    exec(compile(text, name, 'exec'), vars(sys.modules[name]))\n"
    )
    return load + inspect.getsource(program)


def _rlimits(limits: ProgramLimits) -> dict[str, int]:
    rlimits = {
        "RLIMIT_AS": limits.memory,
        "RLIMIT_CPU": math.ceil(limits.seconds) + 1,
        "RLIMIT_FSIZE": 64 * 1024**2,
        "RLIMIT_NOFILE": 64,  # each may be a socket with 200 KiB on its way
        "RLIMIT_CORE": 0,
    }
    # Outside of a sandbox, all processes of the user would count.
    return rlimits | ({} if limits.uncontained else {"RLIMIT_NPROC": limits.processes})


def check_sandbox() -> None:
    """Run a program that looks for what it must not reach; a ConfigError refuses a bad sandbox."""
    try:
        with sandboxed(ProgramLimits(START_TIMEOUT), {"mode": "functions", "code": _PROBE}) as talk:
            talk.receive()
            leaks: list[str] = plain_data.decode(talk.call("leaks")["value"])
        if not leaks:
            return
        complaint = f"it leaves open: {', '.join(leaks)}"
    except (OSError, RuntimeError, NoReply, KeyError) as error:
        complaint = str(error)
    raise ConfigError(
        "code cannot be graded safely here: nothing isolates the responses' programs "
        f"(bubblewrap: {complaint}). Install bubblewrap, or let this process make namespaces; or, "
        "on a machine you can afford to lose, run them without a sandbox (`uncontained=True`)"
    )


_PROBE = """
import ctypes, os, socket

def works(call):
    try:
        return call() >= 0
    except (OSError, AttributeError):
        return False

def leaks():
    shared_memory = lambda: ctypes.CDLL(None).shmget(0, 4096, 0o1600)
    reached = {
        "processes": os.getppid() > 1,
        "the network": any(name != "lo" for _, name in socket.if_nameindex()),
        "files": os.path.exists("/etc/passwd") or os.listdir(".") != [],
        "writing": any(os.access(path, os.W_OK) for path in ("/", "/dev", "/dev/shm", "/usr")),
        "the environment": bool(set(os.environ) - {"PWD", "OLDPWD", "LC_CTYPE", "SHLVL", "_"}),
        "root's rights": os.getuid() == 0,
        "memory beyond the limit (it needs seccomp)": (
            works(lambda: os.memfd_create("")) or works(shared_memory)
        ),
    }
    return [name for name, is_so in reached.items() if is_so]
"""
