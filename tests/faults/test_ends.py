"""Commands that are ended at any moment, and started again until they are done: nothing is lost."""

import errno
import os
import signal
import sys
from collections import Counter
from functools import partial

import pytest
from trials import MOST_STARTS, SETTINGS, TALLY, TIMES, Trial, alike

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
@pytest.mark.parametrize("name", [*SETTINGS, "train of episodes"])
def test_a_signal_at_any_moment(folders, wanted, chance, name, number):
    """It gets a signal at random moments, and then comes to its end."""
    _, work, _ = wanted(name)
    done = 0
    while done < TIMES:
        trial = Trial(name, next(folders))
        for _ in range(min(IN_A_ROW, TIMES - done)):
            command = trial.start()
            if hit := command.has_worked(chance.uniform(0, work)):
                command.send(number)
            code, shown = command.end()
            assert code in CODES[number] or not shown, (code, shown)  # it had not begun
            assert "Traceback" not in shown
            done += hit
            TALLY[f"{number.name} of {name}"] += hit
            if code == 0:
                break
        trial.finish()
        assert alike(trial, wanted) == []


# An end, or a refusal of the system, wherever a file takes its name or goes to the disk.


class Once:
    """Has one call of a function of `os` on a trial's files do something else, in each process.

    Args:
        trial: Whose processes are forked within the block.
        function: `replace`, `fsync` or `mkdir`.
        act: What is done instead, with the call.
        turn: Takes a place, "file n" for the n-th call of a process on that file, and the number
            of the call among all; returns whether the fault happens there.
    """

    def __init__(self, trial, function, act, turn):
        self.record = trial.place / "places"
        self.record.write_text("")
        real, calls, happened = getattr(os, function), Counter(), []

        def counted(*arguments, **options):
            file, folder = str(_file(arguments)), str(trial.folder)
            if not file.startswith(folder) or happened:
                return real(*arguments, **options)
            calls[file] += 1
            place = f"{file.removeprefix(folder)} {calls[file]}"
            happened.extend([place] if turn(place, calls.total()) else [])
            with self.record.open("a") as record:
                record.write(f"{bool(happened):d}{place}\n")
            call = partial(real, *arguments, **options)
            return act(call) if happened else call()

        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, function, counted)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.patch.undo()

    def places(self, happened="1"):
        """List the calls, or those where it happened."""
        return [one[1:] for one in self.record.read_text().splitlines() if one[0] in happened]


def _file(arguments):
    """Return which file a call of `os` is about: the last argument that names one."""
    if isinstance(arguments[0], int):
        return os.readlink(f"/proc/self/fd/{arguments[0]}")
    return [each for each in arguments if isinstance(each, str | os.PathLike)][-1]


def die_after(call):
    call()
    os._exit(9)


def refuse(call, number):
    raise OSError(number, os.strerror(number))


ACTS = {
    "exit before os.replace": ("replace", lambda call: os._exit(9), {9}),
    "exit after os.replace": ("replace", die_after, {9}),
    "full disk (ENOSPC at fsync)": ("fsync", partial(refuse, number=errno.ENOSPC), {2}),
    "read-only folder (EROFS at mkdir)": ("mkdir", partial(refuse, number=errno.EROFS), {2}),
    "damaged disk (EIO at fsync)": ("fsync", partial(refuse, number=errno.EIO), {2}),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_an_end_or_a_refusal_at_every_place(folders, wanted, chance, name, act):
    """At each place in turn, then, until there are `TIMES`, anywhere.

    A command is ended again and again until it is done, so that it ends while it resumes, too: at
    the first place where none has been ended yet, until an undisturbed one meets no such place; if
    `TIMES` is 2 or less, at random places alone.
    """
    function, does, codes = ACTS[act]
    if name == "compare":  # what ends may be one of its runs
        codes = codes | {2}
    trial = Trial(name, next(folders))
    with Once(trial, function, does, lambda *_: False) as undisturbed:
        trial.finish()
    most = 1 + len(undisturbed.places("01")) // 3  # so that several ends fit into one command
    seen, done, sweeping = set(), 0, TIMES > 2
    while sweeping or done < TIMES:
        trial = Trial(name, next(folders))
        before = len(seen)
        for _ in range(MOST_STARTS if sweeping else IN_A_ROW):
            number = chance.randint(1, most)
            turn = (lambda at, _: at not in seen) if sweeping else (lambda _, n, at=number: n == at)
            with Once(trial, function, does, turn) as fault:
                command = trial.start()
            code, shown = command.end()
            places = fault.places()
            assert code in (codes | {0} if places else {0}), (places, code, shown)
            assert "Traceback" not in shown, (places, shown)
            seen.update(places)
            done += len(places)
            TALLY[f"{act}: {name}"] += len(places)
            if code == 0 or (done >= TIMES and not sweeping):
                break
        sweeping = sweeping and len(seen) > before
        trial.finish()
        assert alike(trial, wanted) == [], (name, act, sorted(seen))
    TALLY[f"{act}: {name}, different places"] += len(seen)
