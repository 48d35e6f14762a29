"""Workers: whatever a grading function does, only its own response suffers."""

import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import loading
import pytest
from processes import PATIENCE, start, wait_until_gone
from waiting import wait_until

from rollwise.errors import GraderError
from rollwise.grading import FunctionGrader, pool
from rollwise.grading.pool import WorkerGrader
from rollwise.grading.worker import Limits


@pytest.fixture(scope="module")
def evaluate():
    """Evaluates each response, a Python expression, in a worker."""
    with FunctionGrader("evaluating:evaluate", timeout=PATIENCE, workers=2) as grader:
        yield lambda *responses: grade_counted(grader, responses)


@pytest.fixture(scope="module")
def impatient():
    """The same, for two seconds each."""
    with FunctionGrader("evaluating:evaluate", timeout=2.0, workers=2) as grader:
        yield lambda *responses: grade_counted(grader, responses)


def grade_counted(grader, responses):
    """The rewards, and how many failures they added."""
    before = grader.failures
    rewards = grader.grade(responses, [""] * len(responses)).tolist()
    return rewards, grader.failures - before


def test_endless_responses_cost_their_own_rewards_only(impatient):
    """The second hangs in C code, where Python's signal handlers never run."""
    responses = ["1", "time.sleep(3600)", "0.5", "sum(range(10**18))", "2 + 2"]
    assert impatient(*responses) == ([1.0, 0.0, 0.5, 0.0, 4.0], 2)


@pytest.mark.parametrize(
    "bad",
    [
        "os._exit(3)",
        "os.kill(os.getpid(), signal.SIGKILL)",  # as the kernel does when memory is short
        "sys.exit()",
        "1 / 0",
        "-math.inf",
        "None",
        "10**400",
        "np.ones(2)",
        "write(b'\\0\\0\\1\\0')",  # the length of a message that never comes
        "write(b'\\0\\0\\0\\x0c[NaN, false]')",
        "write(b'\\0\\0\\0\\x0e[[[],0], true]')",
    ],
)
def test_a_bad_response_costs_its_own_reward_only(evaluate, bad):
    assert evaluate("1", bad, "0.5", "2 + 2") == ([1.0, 0.0, 0.5, 4.0], 1)


def test_rewards_of_any_kind_and_texts_of_any_size(evaluate):
    kinds = ["True", "1", "np.float32(1)", "np.bool_(True)", "Fraction(2, 2)"]
    assert evaluate(*kinds) == ([1.0] * 5, 0)
    with FunctionGrader("evaluating:evaluate", workers=1) as grader:
        answers = ["\ud800", "é" * 1_000_000]
        assert grader.grade(["answer == chr(0xD800)", "len(answer)"], answers).tolist() == [1, 1e6]


def test_the_first_of_each_kind_is_logged_and_each_is_counted(caplog):
    with FunctionGrader("evaluating:evaluate", workers=1) as grader:
        bad = ["1 / 0", "1 / 0", "2 / 0", "None", "'x'", "float('nan')"]
        assert grade_counted(grader, bad) == ([0.0] * 6, 6)
        assert grade_counted(grader, ["3 / 0"]) == ([0.0], 1)
    assert [record.getMessage().split(") ")[1].split(" (")[0] for record in caplog.records] == [
        "raised ZeroDivisionError: division by zero",
        "must return one finite number, got NoneType: None",
    ]


def test_the_limit_counts_for_one_response_not_for_those_before_it(impatient):
    """Twelve times half a second on two workers take longer than the limit of two seconds."""
    assert impatient(*(f"time.sleep(0.5) or {i}" for i in range(12))) == ([*range(12)], 0)


def test_threads_submit_and_cancel_at_the_same_time():
    def one(thread):
        for call in range(15):
            numbers = [1000 * thread + 50 * call + i for i in range(50)]
            futures = [grader.submit(str(number), "") for number in numbers]
            for future in futures[::7]:
                future.cancel()
            for number, future in zip(numbers, futures, strict=True):
                assert future.cancelled() or future.result(PATIENCE) == number

    with (
        WorkerGrader(loading.load, Limits(PATIENCE), workers=2, shared=True) as grader,
        ThreadPoolExecutor(4) as threads,
    ):
        assert [*threads.map(one, range(4))] == [None] * 4


def test_workers_are_lean_and_have_default_signals_and_a_process_group_of_their_own(evaluate):
    facts = [
        "not {'torch', 'math_verify', 'sympy', 'pytest'} & set(sys.modules)",
        f"os.getpgrp() != {os.getpgrp()}",
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL",
        "signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()",
        "sys.stdin.read() == ''",
    ]
    with FunctionGrader("evaluating:evaluate", workers=1) as grader:
        assert grade_counted(grader, facts) == ([1.0] * 5, 0)


def test_an_idle_worker_that_is_killed_costs_nothing():
    """Nor do the responses that its pool had not sent yet: they are more than a pipe holds."""
    padding = " " * 10_000
    with WorkerGrader(loading.load, Limits(PATIENCE), workers=1, shared=True) as grader:
        loaders = set()
        for i in range(2):
            (pid, loader), _ = grade_counted(
                grader, [f"{i} * 0 + os.getpid()", f"{i} * 0 + loader"]
            )
            os.kill(int(pid), signal.SIGKILL)
            loaders.add(loader)  # which its successor shares
            responses = [f"{i} + {j}{padding}" for j in range(50)]
            assert grade_counted(grader, responses) == ([i + j for j in range(50)], 0)
    assert len(loaders) == 1 and pid not in loaders


def test_a_worker_holds_no_more_memory_than_it_may():
    limits = Limits(PATIENCE, memory=64 * 1024**2)
    with WorkerGrader(loading.load, limits, workers=1) as grader:
        assert grade_counted(grader, ["len(bytes(2**28))", "2"]) == ([0.0, 2.0], 1)
        (one, other), _ = grade_counted(
            grader, ["os.getpid() + 0 * len('x' * 2**25)", "os.getpid()"]
        )
    assert one != other  # it had grown


def test_a_supervisor_that_is_killed_ends_its_workers_and_is_replaced_for_all_of_them():
    with WorkerGrader(loading.load, Limits(PATIENCE), workers=2, shared=True) as grader:
        (loader, worker), _ = grade_counted(grader, ["loader", "os.getpid()"])
        futures = [grader.submit(f"time.sleep(0.5) or {i}", "") for i in range(6)]
        time.sleep(0.2)
        os.kill(int(loader), signal.SIGKILL)
        wait_until_gone(int(worker))
        assert [future.result(PATIENCE) for future in futures] == [*range(6)]
        (successor,), _ = grade_counted(grader, ["0 or loader"])
        assert grader.failures == 0
    assert successor != loader


@pytest.mark.parametrize("shared", [False, True])
def test_a_process_that_is_killed_while_it_starts_is_replaced(tmp_path, shared):
    load = partial(loading.killed_once, str(tmp_path / "begun"))
    with WorkerGrader(load, Limits(1.0), workers=1, shared=shared) as grader:
        assert grade_counted(grader, ["1 + 1"]) == ([2.0], 0)  # nor does a slow start count


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("load", "why"),
    [
        (loading.lacking, "cannot start: ImportError: no such library"),
        (loading.leaving, "cannot start: .*ended with exit code 7"),
    ],
)
def test_workers_that_cannot_start_say_why(load, why, shared):
    with (
        WorkerGrader(load, Limits(PATIENCE), workers=2, shared=shared) as grader,
        pytest.raises(GraderError, match=why),
    ):
        grader.grade(["1", "2"], ["", ""])


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_a_worker_that_is_frozen_is_replaced(size):
    """One that is idle, as if a thread of an earlier response held its interpreter."""
    with WorkerGrader(loading.load, Limits(3.0), workers=1) as grader:
        (pid,), _ = grade_counted(grader, ["os.getpid()"])
        os.kill(int(pid), signal.SIGSTOP)
        future = grader.submit(f"7{' ' * size}", "")
        assert future.result(PATIENCE) == 7.0
        assert grader.failures == 0


def test_a_supervisor_that_is_frozen_is_replaced(monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 1.0)
    with WorkerGrader(loading.load, Limits(PATIENCE), workers=1, shared=True) as grader:
        (loader,), _ = grade_counted(grader, ["loader"])
        os.kill(int(loader), signal.SIGSTOP)
        future = grader.submit(f"7{' ' * 2_000_000}", "")
        assert future.result(PATIENCE) == 7.0


@pytest.mark.parametrize(
    ("fails", "outcome"),
    [
        *(("1 / 0", ([0.5, 0.0], 1)), ("os._exit(1)", ([0.5, 0.0], 1))),
        *(("time.sleep(99)", ([0.5, 0.0], 1)), ("sum(range(10**18))", ([0.0, 0.0], 2))),
    ],
)
def test_a_failure_is_tried_once_more_unless_it_computed_for_all_its_time(tmp_path, fails, outcome):
    begun = str(tmp_path / "begun")
    once = f"0.5 if os.path.exists({begun!r}) else os.mkdir({begun!r}) or {fails}"
    with FunctionGrader("evaluating:evaluate", timeout=1.0, workers=1) as grader:
        assert grade_counted(grader, [once, fails]) == outcome


def test_a_worker_that_cannot_start_is_done_without_if_others_run(tmp_path):
    load = partial(loading.only_first, str(tmp_path / "begun"))
    with WorkerGrader(load, Limits(PATIENCE), workers=3) as grader:
        assert grade_counted(grader, ["1"]) == ([1.0], 0)
        responses = [f"time.sleep(0.2) or {i}" for i in range(8)]
        assert grade_counted(grader, responses) == ([*range(8)], 0)


def test_closing_ends_a_grade_in_another_thread_leaves_none_and_refuses(tmp_path):
    begun = tmp_path / "begun"
    before = set(threading.enumerate())
    with ThreadPoolExecutor(1) as threads:
        grader = FunctionGrader("evaluating:evaluate", timeout=PATIENCE, workers=1)
        starts = "__import__('subprocess').Popen(['sleep', '3600']).pid"
        response = f"open({str(begun)!r}, 'w').write(str({starts})) and time.sleep(3600)"
        grading = threads.submit(grader.grade, [response, "1"], ["", ""])
        wait_until(lambda: begun.exists() and begun.read_text())
        grader.close()
        wait_until_gone(int(begun.read_text()))
        with pytest.raises(RuntimeError, match="the grader is closed"):
            grading.result(PATIENCE)
    with pytest.raises(RuntimeError, match="the grader is closed"):
        grader.grade(["1"], [""])
    assert set(threading.enumerate()) <= before


def test_a_forgotten_grader_ends_its_workers():
    grader = FunctionGrader("evaluating:evaluate", workers=1)
    (pid,), _ = grade_counted(grader, ["os.getpid()"])
    del grader
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


GRADE = """
from rollwise.errors import GraderError
from rollwise.grading import FunctionGrader, pool
print("script", flush=True)
grader = FunctionGrader("evaluating:evaluate", timeout=3600.0, workers=2)
print(grader.grade({responses}, [""] * {count}))
"""


def test_a_script_without_a_guard_runs_once_and_needs_no_close():
    process = start(GRADE.format(responses=["1", "2"], count=2))
    output, errors = process.communicate(timeout=PATIENCE)
    assert (output, errors, process.returncode) == ("script\n[1. 2.]\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_an_interrupted_or_killed_script(number):
    """Both workers hang, and more waits than a pipe holds."""
    responses = "[f\"tell('begun') or time.sleep(3600 + {i})\" for i in range(3000)]"
    process = start(GRADE.format(responses=responses, count=3000))
    assert [process.stdout.readline() for _ in range(3)] == ["script\n", "begun\n", "begun\n"]
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # Ctrl-C reaches the whole group
    else:
        process.kill()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert errors.count("Traceback") == (number == signal.SIGINT)
