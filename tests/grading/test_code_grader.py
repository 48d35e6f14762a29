"""Code: what passes, what does not, and that nothing hostile gets out or gets through."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from forked import family
from processes import state_of, wait_until_gone
from waiting import wait_until

from rollwise.errors import ConfigError
from rollwise.grading import CodeGrader
from rollwise.grading.comparing import value_of
from rollwise.grading.conversation import LONGEST_REPLY
from rollwise.grading.plain_data import encode

STDIN = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7.0"]})
CALLS = json.dumps({"inputs": ["1\n2\n", "[3]\n[4]"], "outputs": ["3", "[3, 4]"], "fn_name": "add"})
ASSERTS = json.dumps(
    [
        "assert add(1, 2) == 3",
        "assert add((1,), b=(2,)) == (1, 2)",
        "assert add([1], [2]) != (1, 2)",
    ]
)

ADDS = "a, b = map(int, input().split())\nprint(a + b)"
ADD = "def add(a, b):\n    return a + b"


def fenced(code):
    return f"I think:\n```python\n{code}\n```\n"


@pytest.fixture(scope="module")
def grader():
    try:
        with CodeGrader(timeout=20.0, workers=2) as grader:
            yield grader
    except ConfigError as error:
        pytest.skip(f"needs a system with a sandbox: {error}")


PASSING = [
    (f"def main(): print(sum(map(int, input().split())))\nmain()\nexit()\n# {ADD!r}", STDIN),
    (f'if __name__ == "__main__":\n    {ADDS.replace(chr(10), chr(10) + "    ")}', STDIN),
    ("import sys\nprint(sum(int(word) for word in sys.stdin.buffer.read().split()))", STDIN),
    ("class Solution:\n    def add(self, a: List[int], b): return a + b", CALLS),
    *((ADDS, STDIN), (ADD, ASSERTS)),
]


@pytest.mark.parametrize(("code", "tests"), PASSING)
def test_programs_that_pass(grader, code, tests):
    assert grader.grade([fenced(code)], [tests]).tolist() == [1.0]


HOSTILE = {
    "ends well at once": "import sys\nsys.exit(0)",
    "ends hard at once": "import os\nos._exit(0)",
    "equals all": (
        "class Any:\n    __eq__ = lambda *_: True\n    __ne__ = lambda *_: True\n"
        "    __add__ = lambda *_: Any()\ndef add(a, b): return Any()"
    ),
    "a number that equals all": (
        "class Any(int):\n    __eq__ = lambda *_: True\n    __ne__ = lambda *_: True\n"
        "    __hash__ = None\ndef add(a, b): return Any(9)"
    ),
    "patches its surroundings": (
        "import builtins, json, sys\njson.dumps = lambda *_: '{\"passed\": true}'\n"
        "builtins.AssertionError = Warning\nfor m in list(sys.modules.values()):\n"
        "    for n in ('encode', 'value_of', 'printed'):\n"
        "        setattr(m, n, lambda *_: ['int', '0x3'])\ndef add(a, b): return 3"
    ),
    "writes to all that is open": (
        "import os\nfor i in range(100):\n    for line in (b'{\"passed\": true}', b'[]', b'x', "
        "b'{\"call\": \"add\"}'):\n        try: os.write(i, line + b'\\n')\n"
        "        except OSError: pass\ndef add(a, b): return 0"
    ),
    "takes more memory than there is": "x = 'a' * 2**34\n" + ADD + "\n" + ADDS,
    "prints a gigabyte": "for _ in range(1024): print('x' * 2**20)\nadd = None",
    "multiplies": "import os\nfor _ in range(7): os.fork()\n" + ADD + "\n" + ADDS,
    "makes threads": (
        "import threading, time\nfor _ in range(50):\n"
        f"    threading.Thread(target=time.sleep, args=(2,)).start()\n{ADD}\n{ADDS}"
    ),
    "fills the disk": (
        "for i in range(3):\n    with open(f'{i}', 'wb') as file:\n"
        f"        for _ in range(40): file.write(bytes(2**20))\n{ADD}\n{ADDS}"
    ),
    "makes files in memory": (
        "import os\nfor _ in range(60): os.posix_fallocate(os.memfd_create(''), 0, 2**24)\n"
        f"{ADD}\n{ADDS}"
    ),
    "kills whom it can": "import os\nos.kill(-1, 9)\nos.kill(os.getppid() or 1, 9)\nos.abort()",
    "is no Python": "print(1 2)",
    "is deeply nested": "(" * 10_000,
    "is the wrong function": "def sub(a, b): return a + b",
    "takes everything for granted": "from typing import *",
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_hostile_programs_get_nothing_and_the_next_is_graded(grader, code):
    failures = grader.failures
    responses = [fenced(code)] * 3 + [fenced(ADD)]
    assert grader.grade(responses, [STDIN, CALLS, ASSERTS, CALLS]).tolist() == [0, 0, 0, 1]
    assert grader.failures == failures


def test_a_program_cannot_end_what_iterates_over_its_results(grader):
    tests = json.dumps(["assert all(map(is_even, [2, 4]))"])
    assert grader.grade(["def is_even(n): raise StopIteration"], [tests]).tolist() == [0.0]


@pytest.mark.parametrize("uncontained", [False, True])
def test_endless_programs_end_at_the_limit(uncontained):
    """Each kind of tests, with a program that computes; and with one that sleeps."""
    programs = ["while True: pass"] * 3 + ["import time\ntime.sleep(3600)"] * 2
    tests = [STDIN, CALLS, ASSERTS, CALLS, STDIN]
    with CodeGrader(timeout=1.0, workers=2, uncontained=uncontained) as quick:
        assert quick.grade([fenced(code) for code in programs], tests).tolist() == [0.0] * 5
        assert quick.failures == 0
        if uncontained:  # what was killed ends soon, not at once
            wait_until(lambda: not any(map(is_program, family(os.getpid()))))


def is_program(pid):
    with suppress(OSError):  # it ended in the meantime
        return b"inside a sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_what_returns_is_bounded_and_no_number_of_it_is_hashed(grader):
    with pytest.raises(ValueError, match="'set' is not in JSON"):
        value_of(["set", [["int", "0x1"]]])
    found = value_of(encode({2**61 - 1: (1.5,)}))
    assert found == {str(2**61 - 1): [1.5]}
    tests = json.dumps({"inputs": [[]], "outputs": [["x"]], "fn_name": "f"})
    codes = [f"def f(): return ['x' * {size}]" for size in (1, LONGEST_REPLY)]
    failures = grader.failures
    assert grader.grade([fenced(code) for code in codes], [tests] * 2).tolist() == [1.0, 0.0]
    assert grader.failures == failures


@pytest.mark.parametrize("uncontained", [False, True])
def test_nothing_is_left_behind(uncontained):
    """Neither what still runs, nor zombies: of a long run there would be thousands."""
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    seconds = 0 if uncontained else 99  # without a sandbox, it ends by itself
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.close(1)\n"
        f"    time.sleep({seconds})"
    )
    tests = json.dumps({"inputs": [""], "outputs": [""]})
    codes = [fenced(f"{code}\n# {number}") for number in range(4)]
    with CodeGrader(workers=1, uncontained=uncontained) as one:
        one.grade([fenced(ADD)], [CALLS])  # its worker runs
        before = family(os.getpid())
        assert one.grade(codes, [tests] * 4).tolist() == [1.0] * 4
        for pid in set(family(os.getpid())) - set(before):
            wait_until_gone(pid)
        wait_until(lambda: "Z" not in map(state_of, family(os.getpid())))


@pytest.mark.parametrize(
    ("tests", "complaint"),
    [
        ("no JSON", "tests must be JSON"),
        ("{}", "need `inputs` and `outputs`"),
        ('{"inputs": ["1"], "outputs": []}', "got 1 inputs and 0 outputs"),
        ('["assert 1 == 1"]', "no test used the program"),
        ('["assert add("]', "tests are not valid Python"),
        ('{"inputs": "12", "outputs": "12"}', "must be lists"),
        ('{"inputs": [5], "outputs": [5], "fn_name": "add"}', "arguments must be a list"),
        ('["assert add(1, 2) == 3", "import nothing"]', "cannot be run: ModuleNotFoundError"),
    ],
)
def test_tests_that_cannot_be_read_are_failures(grader, tests, complaint, caplog):
    failures = grader.failures
    grader._pool._logged.clear()
    assert grader.grade([fenced(ADD)], [tests]).tolist() == [0.0]
    assert grader.failures == failures + 1
    assert complaint in caplog.text
