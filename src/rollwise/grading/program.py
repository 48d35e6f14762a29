"""What runs inside a sandbox, as a script of its own: a response's program or a problem's tests.

It reports what a response's program printed or returned, as plain data, and never a verdict, which
the program could forge. These data are compared outside, or by the tests in a sandbox of their own.
"""

import builtins
import contextlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any, BinaryIO

_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
PRELUDE = "\n".join([*(f"import {name}\nfrom {name} import *" for name in _MODULES)])
PRELUDE += "\nfrom builtins import *"
"""Imports that programs for LiveCodeBench and similar benchmarks rely on."""

MOST_OUTPUT = 16 * 1024**2
"""Bytes of output that are read from a program; one that prints more has failed."""

KINDS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any) -> Any:
    """Turn plain data into JSON that tells lists, tuples and sets apart; TypeError for the rest."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return ["int", hex(value)]
    if isinstance(value, float):
        return ["float", float.__repr__(value)]
    if isinstance(value, str):
        return str.__str__(value)
    for name, kind in KINDS.items():
        if isinstance(value, kind):
            return [name, [encode(item) for item in kind.__iter__(value)]]
    if isinstance(value, dict):
        return ["dict", [[encode(k), encode(v)] for k, v in dict.items(value)]]
    raise TypeError(f"{type(value).__name__} is not plain data")


def decode(data: Any) -> Any:
    """Undo `encode`, or raise ValueError or TypeError; the result has only built-in types."""
    if not isinstance(data, list):
        return data
    kind, content = data
    if kind == "int":
        return int(content, 16)
    if kind == "float":
        return float(content)
    if kind == "dict":
        return {decode(k): decode(v) for k, v in content}
    if kind not in KINDS:
        raise ValueError(f"unknown kind of data {kind!r}")
    return KINDS[kind](decode(item) for item in content)


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
    serve = {"program": run_program, "functions": call_functions, "tests": run_tests}[first["mode"]]
    serve(first, channel)


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
    return {"__name__": name, "__builtins__": granted | vars(builtins)}


def compile_program(code: str) -> Any:
    """Compile a program; one that does not compile raises when it is run."""
    try:
        return compile(code, "response.py", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "raise SystemExit(1)"


def output_of(program: Any, namespace: dict[str, Any], given: str, channel: Channel) -> Any:
    """Run a program in a process of its own; return its output, or None if it failed."""
    source = tempfile.TemporaryFile(dir=".")  # noqa: SIM115, closed below
    source.write(given.encode("utf-8", "surrogatepass"))
    source.seek(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        channel.close()
        os.dup2(source.fileno(), 0)
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)
        os._exit(status_of(program, namespace))
    os.close(writer)
    source.close()
    output = read_all(reader)
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    failed = output is None or os.waitstatus_to_exitcode(status) != 0
    return None if failed else output


def status_of(program: Any, namespace: dict[str, Any]) -> int:
    """Run a program to its end in this process; return its exit status."""
    status: Any = 0
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    try:
        exec(program, namespace)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:
        status = 1
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    return int(status) & 255


def read_all(reader: int) -> str | None:
    """Read until every writer has ended; None if it is too much."""
    parts, size = [], 0
    while part := os.read(reader, 65536):
        parts.append(part)
        size += len(part)
        if size > MOST_OUTPUT:
            return None
    return b"".join(parts).decode("utf-8", "replace")


def end_others() -> None:
    """End what a program left running: all other processes of the sandbox."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def call_functions(first: dict[str, Any], channel: Channel) -> None:
    """Define a program's functions, then call them as requested and report what they return."""
    namespace = make_namespace("response")
    try:
        exec(compile_program(first["code"]), namespace)
    except BaseException as error:
        channel.write({"error": type(error).__name__})
        return
    channel.write({"value": None})
    while True:
        request = channel.read()
        try:
            channel.write({"value": encode(call_function(namespace, request))})
        except BaseException as error:
            channel.write({"error": type(error).__name__})


def call_function(namespace: dict[str, Any], request: dict[str, Any]) -> Any:
    """Call a function, or the method of that name of a class `Solution`."""
    name = request["call"]
    solution: Any = namespace.get("Solution")
    function = getattr(solution(), name) if hasattr(solution, name) else namespace[name]
    return function(*map(decode, request["args"]), **decode(request["kwargs"]))


def run_tests(first: dict[str, Any], channel: Channel) -> None:
    """Run a problem's tests; the functions that they call run in the program's own sandbox."""

    def remote(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            channel.write({"call": name, "args": [*map(encode, args)], "kwargs": encode(kwargs)})
            reply = channel.read()
            if "error" not in reply:
                return decode(reply["value"])
            kind: Any = getattr(builtins, str(reply["error"]), None)
            is_error = isinstance(kind, type) and issubclass(kind, Exception)
            if not is_error or kind is StopIteration:  # that would end `all(map(f, ...))` early
                raise RuntimeError(reply["error"])
            raise kind()

        return call

    namespace: dict[str, Any] = {"__name__": "tests", "math": math}
    namespace |= {name: remote(name) for name in first["functions"]}
    try:
        exec(compile(first["code"], "tests.py", "exec"), namespace)
    except (ImportError, NameError) as error:
        channel.write({"passed": False, "error": f"{type(error).__name__}: {error}"[:200]})
    except BaseException:
        channel.write({"passed": False})
    else:
        channel.write({"passed": True})
    channel.read()


if __name__ == "__main__":
    main()
