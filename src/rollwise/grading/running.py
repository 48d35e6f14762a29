"""Running tests: statements, and the tests of `unittest` and pytest that they define."""

import builtins
import importlib
import inspect
import os
import sys
import types
import unittest
from pathlib import Path
from typing import Any

from rollwise.grading.mirrors import Unsupported, handle_of
from rollwise.grading.objects import Peer

SOLUTION = ("solution", "main", "program", "response", "submission", "source", "your_module")
"""Names under which tests import the program."""


class Outcome:
    """What became of the tests that ran: at least one must, and none may fail.

    Attributes:
        complaint: Why the tests cannot be run; "" if nothing kept them from it.
    """

    def __init__(self) -> None:
        self.has_run = self.has_failed = False
        self.complaint = ""

    def fail(self, error: BaseException | None) -> None:
        """Take note of a failure, and whether the tests themselves are its reason."""
        self.has_failed = True
        is_theirs = isinstance(error, ImportError) and error.name not in SOLUTION
        if isinstance(error, Unsupported) or (is_theirs and not handle_of(error)):
            self.complaint = f"{type(error).__name__}: {error}"[:200]

    def watch_unittest(self) -> None:
        """Take note of what any test case of `unittest` does, whoever runs it."""

        def watched(name: str, original: Any) -> Any:
            def method(result: Any, *args: Any) -> Any:
                self.has_run = True
                if name != "startTest" and args[-1] is not None:
                    self.fail(args[-1][1] if isinstance(args[-1], tuple) else None)
                return original(result, *args)

            return method

        watch = ("startTest", "addError", "addFailure", "addSubTest", "addUnexpectedSuccess")
        for name in watch:
            setattr(unittest.TestResult, name, watched(name, getattr(unittest.TestResult, name)))


def run_tests(first: dict[str, Any], channel: Any) -> None:
    """Run tests, and report whether they passed; what they use of the program runs elsewhere."""
    peer, outcome = Peer(channel), Outcome()
    sys.path += first["folders"]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of NumPy, each of which would reserve memory
    unittest.main = lambda *_, **__: None  # type: ignore[assignment]
    outcome.watch_unittest()
    try:
        found = peer.find(first["names"])
        for name in SOLUTION:
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(found)
        if first["needs_pytest"]:
            run_pytest(first["code"], found, outcome)
        else:
            given = {"__name__": "__main__", "math": importlib.import_module("math")}
            namespace = found | given
            exec(compile(first["code"], "tests.py", "exec"), namespace)
            if not outcome.has_run:
                find_tests(namespace).run(unittest.TestResult())
    except BaseException as error:
        outcome.fail(error)
    if not outcome.has_failed and not peer.is_used:
        outcome.fail(Unsupported("no test used the program"))
    channel.write({"passed": not outcome.has_failed, "complaint": outcome.complaint})
    channel.read()


def find_tests(namespace: dict[str, Any]) -> unittest.TestSuite:
    """Return the tests that are defined: test cases, functions and classes called test…."""
    suite = unittest.TestSuite()
    for name, value in namespace.items():
        if handle_of(value):
            continue
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            suite.addTest(unittest.defaultTestLoader.loadTestsFromTestCase(value))
        elif isinstance(value, type) and name.startswith("Test"):
            for method in filter(lambda name: name.startswith("test"), dir(value)):
                suite.addTest(_of_method(value(), method))
        elif inspect.isfunction(value) and name.startswith("test"):
            suite.addTest(unittest.FunctionTestCase(value))
    return suite


def _of_method(instance: Any, method: str) -> unittest.FunctionTestCase:
    def around(name: str) -> Any:
        function = getattr(instance, name, None)
        if function is None or not inspect.signature(function).parameters:
            return function
        return lambda: function(getattr(instance, method))

    before, after = around("setup_method"), around("teardown_method")
    return unittest.FunctionTestCase(getattr(instance, method), before, after)


def run_pytest(code: str, found: dict[str, Any], outcome: Outcome) -> None:
    """Run tests that need pytest, which must be installed."""
    import pytest

    class Plugin:
        def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
            outcome.has_run = True
            value = call.excinfo and call.excinfo.value
            if isinstance(value, pytest.FixtureLookupError):
                value = Unsupported(value.formatrepr().errorstring)
            if value is not None and not isinstance(value, pytest.skip.Exception):
                outcome.fail(value)

        def pytest_exception_interact(self, call: Any) -> None:
            value = call.excinfo.value
            outcome.fail(value.__cause__ or value)

    vars(builtins).update(found)
    Path("tests.py").write_text(code, encoding="utf-8")
    options = ["-q", "-s", "-p", "no:cacheprovider", "--assert=plain", "tests.py"]
    if pytest.main(options, plugins=[Plugin()]) and not outcome.has_failed:
        outcome.fail(Unsupported("pytest found no tests"))
