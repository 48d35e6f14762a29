"""What runs inside a sandbox, as a script of its own: a response's program or a problem's tests.

It reports what a response's program printed or returned, and never a verdict, which the program
could forge. The verdict is formed outside, or by the tests in a sandbox of their own.
"""

import atexit
import builtins
import contextlib
import importlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
from typing import Any, BinaryIO

_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
PRELUDE = "\n".join([*(f"import {name}\nfrom {name} import *" for name in _MODULES)])
PRELUDE += "\nfrom builtins import *"
"""Imports that programs for LiveCodeBench and similar benchmarks rely on."""

RECURSION = 50_000
"""Calls within calls that LiveCodeBench lets programs make."""

MOST_OUTPUT = 16 * 1024**2
"""Bytes of output that are read from a program; one that prints more has failed."""


def main() -> None:
    """Read requests from stdin, a line of JSON each, and answer on stdout."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    channel = Channel(requests, replies)
    first = channel.read()
    channel.write("ready")
    for name, limit in first["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # which `site` would have brought
    sys.set_int_max_str_digits(0)
    if first["mode"] == "tests":
        importlib.import_module("rollwise.grading.running").run_tests(first, channel)
    else:
        {"program": run_program, "functions": call_functions}[first["mode"]](first, channel)


class Channel:
    """Lines of JSON in both directions."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests, self._replies = requests, replies

    def read(self) -> Any:
        """Wait for a line; end this process when there are no more."""
        line = self._requests.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    def write(self, message: Any) -> None:
        """Send a line."""
        self._replies.write(json.dumps(message).encode() + b"\n")
        self._replies.flush()

    def close(self) -> None:
        """Close both ends."""
        self._requests.close()
        self._replies.close()


def run_program(first: dict[str, Any], channel: Channel) -> None:
    """Run a program from its beginning for each input, and report what it prints."""
    namespace = make_namespace("__main__")
    program = compile_program(first["code"])
    while True:
        request = channel.read()
        channel.write(output_of(program, namespace, request["stdin"], channel))
        if first["isolated"]:
            end_others()


def make_namespace(name: str) -> dict[str, Any]:
    """Make the namespace that a program starts with."""
    # What `PRELUDE` imports is there like built-in names, so that `operator.add` does not count as
    # the program's own `add`.
    granted: dict[str, Any] = {}
    exec(PRELUDE, granted)
    sys.setrecursionlimit(RECURSION)
    return {"__name__": name, "__builtins__": granted | vars(builtins)}


def compile_program(code: str) -> Any:
    """Compile a program; one that does not compile raises when it is run."""
    try:
        return compile(code, "response.py", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "raise SystemExit(1)"


def output_of(program: Any, namespace: dict[str, Any], given: str, channel: Channel) -> Any:
    """Run a program in a process of its own; return its output, or None if it failed."""
    with tempfile.TemporaryFile(dir=".") as source, tempfile.TemporaryFile(dir=".") as output:
        source.write(given.encode("utf-8", "surrogatepass"))
        source.seek(0)
        child = os.fork()
        if child == 0:
            channel.close()
            os.dup2(source.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os._exit(status_of(program, namespace))
        _, status = os.waitpid(child, 0)
        output.seek(0)
        printed = output.read(MOST_OUTPUT + 1)
    failed = len(printed) > MOST_OUTPUT or os.waitstatus_to_exitcode(status) != 0
    return None if failed else printed.decode("utf-8", "replace")


def status_of(program: Any, namespace: dict[str, Any]) -> int:
    """Run a program to its end in this process; return its exit status."""
    status: Any = 0
    sys.stdin = os.fdopen(0, encoding="utf-8")
    output = sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    vars(sys)["__stdout__"] = output
    try:
        exec(program, namespace)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:
        status = 1
    # What Python does at its end, without the time that it takes to take itself apart.
    with contextlib.suppress(BaseException):
        if threading := sys.modules.get("threading"):
            threading._shutdown()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for file in (sys.stdout, output):
        with contextlib.suppress(BaseException):
            file.flush()
    return int(status) & 255


def end_others() -> None:
    """End what a program left running: all other processes of the sandbox."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def call_functions(first: dict[str, Any], channel: Channel) -> None:
    """Define a program's functions, then use them as requested."""
    from rollwise.grading.objects import Peer

    namespace = make_namespace("response")
    peer = Peer(channel, namespace)
    sys.stdout = io.TextIOWrapper(peer.printed, encoding="utf-8", write_through=True)
    try:
        exec(compile_program(first["code"]), namespace)
    except BaseException as error:
        channel.write({"error": type(error).__name__})
        return
    channel.write({"value": None})
    peer.serve()


if __name__ == "__main__":
    main()
