"""Commands that are ended at any moment, and started again until they are done: nothing is lost."""

import errno
import os
import signal
import sys

import pytest
from forked import children_of
from trials import SETTINGS, TIMES, Trial, alike, unlike

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone"),
]

IN_A_ROW = 5
"""A command is ended so often before it may come to its end."""

CODES = {
    signal.SIGKILL: {0, -signal.SIGKILL},
    signal.SIGTERM: {0, 128 + signal.SIGTERM},
    signal.SIGINT: {0, 130},
}
"""How a command may end that gets a signal; it may have been done before."""


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_signal_at_any_moment(tmp_path, wanted, chance, tally, name, number):
    _, work, _ = wanted(name)
    attempt = done = 0
    while done < TIMES:
        attempt += 1
        trial = Trial(name, tmp_path / str(attempt))
        for _ in range(min(IN_A_ROW, TIMES - done)):
            command = trial.start()
            if hit := command.has_worked(chance.uniform(0, work)):
                command.send(number)
            code, shown = command.end()
            assert code in CODES[number] or not shown, (code, shown)  # it had not begun
            assert "Traceback" not in shown
            done += hit
            tally.count(f"{number.name} of {name}", hit)
            if code == 0:
                break
        trial.finish()
        assert alike(trial, wanted) == []


SAID = {
    signal.SIGKILL: "a process of the engine ended",
    signal.SIGTERM: "nothing: it is for the command itself",
    signal.SIGINT: "nothing: it is for the command itself",
    signal.SIGSTOP: "(`stall_limit`)",
}
"""What a command says when a process of its engine gets a signal."""


@pytest.mark.parametrize("number", SAID, ids=lambda number: number.name)
def test_a_process_of_the_engine_dies(tmp_path, wanted, chance, tally, monkeypatch, number):
    """The run says so and ends, and the same command goes on from its checkpoint."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("rollwise.engines.cpu.process_count", lambda device: 2)
    _, work, _ = wanted("train")
    attempt = done = 0
    while done < TIMES:
        attempt += 1
        trial = Trial("train", tmp_path / str(attempt), stall_limit=2)
        command = trial.start()
        command.has_worked(chance.uniform(0, work))
        lanes = children_of(command.pid)
        if lanes:
            os.kill(lanes[0], number)
            done += 1
        code, shown = command.end()
        assert code == 0 or (code == 2 and SAID[number] in shown), shown
        assert "Traceback" not in shown
        tally.count(f"{number.name} of a forked process of the engine", bool(lanes))
        trial.finish()
        assert unlike(trial, wanted("train")[0]) == []


# An end, or a refusal of the system, wherever a file takes its name or goes to the disk.


class At:
    """Has the n-th call of a function of `os` do something else, in a process that is forked."""

    def __init__(self, monkeypatch, function, count, act):
        self.monkeypatch, self.function, self.count, self.act = monkeypatch, function, count, act

    def __enter__(self):
        real, calls = getattr(os, self.function), []

        def counted(*arguments, **options):
            calls.append(arguments)
            if len(calls) == self.count:
                return self.act(lambda: real(*arguments, **options))
            return real(*arguments, **options)

        self.monkeypatch.setattr(os, self.function, counted)

    def __exit__(self, *_):
        self.monkeypatch.undo()


def die_before(call):
    os._exit(9)


def die_after(call):
    call()
    os._exit(9)


def refuse(number):
    def act(call):
        raise OSError(number, os.strerror(number))

    return act


ACTS = {
    "exit before os.replace": ("replace", die_before, {9}),
    "exit after os.replace": ("replace", die_after, {9}),
    "full disk (ENOSPC at fsync)": ("fsync", refuse(errno.ENOSPC), {2}),
    "read-only folder (EROFS at mkdir)": ("mkdir", refuse(errno.EROFS), {2}),
    "damaged disk (EIO at fsync)": ("fsync", refuse(errno.EIO), {2}),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_an_end_or_a_refusal_at_every_place(tmp_path, wanted, chance, tally, name, act):
    """All of them where there are no more than `TIMES`, else as many, chosen at random."""
    function, does, codes = ACTS[act]
    if name == "compare":  # what ends may be one of its runs
        codes = codes | {2}
    places = list(range(1, 1 + _calls(tmp_path, name, function)))
    for place in chance.sample(places, min(TIMES, len(places))):
        trial = Trial(name, tmp_path / f"{place}")
        with pytest.MonkeyPatch.context() as patch, At(patch, function, place, does):
            command = trial.start()
        code, shown = command.end()
        assert code in codes | {0}, (place, code, shown)
        assert "Traceback" not in shown, (place, shown)
        tally.count(f"{act}: {name}")
        trial.finish()
        assert alike(trial, wanted) == [], place


def _calls(place, name, function):
    """Count the calls of a function of `os` in a whole command."""
    counter = place / "calls"

    def counting(call):
        with counter.open("a") as file:
            file.write("x")
        return call()

    trial = Trial(name, place / "counted")
    with pytest.MonkeyPatch.context() as patch:
        real = getattr(os, function)
        patch.setattr(os, function, lambda *a, **o: counting(lambda: real(*a, **o)))
        command = trial.start()
    code, shown = command.end()
    assert code == 0, shown
    return len(counter.read_text())
