"""Engines and graders that raise, hang, answer late, twice or out of order; clocks that jump."""

import os
import random
import signal
import sys
import time

import pytest
from forked import children_of
from trials import MOST_STARTS, SETTINGS, TALLY, TIMES, Trial, alike, unlike

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone"),
]

RATES = (0.01, 0.1, 0.3)
STALL_LIMIT = 2.0


@pytest.fixture
def start(monkeypatch, chance):
    """Start a trial whose plug-ins have random numbers that they have never had."""

    def of(trial, codes=(0,)):
        monkeypatch.setenv("MISBEHAVIOUR", str(chance.random()))
        code, shown = trial.start().end()
        assert code in codes and "Traceback" not in shown, shown
        return code, shown

    return of


def starts_until_done(start, trial):
    """Start a trial until it comes to its end; yield what it showed wherever it was refused."""
    for _ in range(MOST_STARTS):
        code, shown = start(trial, (0, 2))
        if code == 0:
            return
        yield " ".join(shown.split())
    pytest.fail(f"it is not done after {MOST_STARTS} starts")


@pytest.mark.parametrize("fault", ["late and out of order", "lost"])
@pytest.mark.parametrize("name", ["train", "evaluate", "prepare"])
def test_an_engine_answers_as_it_likes(folders, start, wanted, chance, name, fault):
    """The command comes to the same end, and each draw counts once."""
    plugin = {"engine.type": "misdrawing:Misdrawing"}
    for _ in range(TIMES):
        rate = chance.choice(RATES)
        faulty = {"engine.fault": fault, "engine.rate": rate}
        trial = Trial(name, next(folders), **plugin, **faulty)
        _, shown = start(trial)
        best, _, _ = wanted(name, **plugin, **{"engine.fault": "right"})
        if (name, fault) == ("train", "lost"):  # drawn again in another batch: rounded otherwise
            lines = [each["metrics.jsonl"][1] for each in (trial.result(), best)]
            found, line = ([line[name] for name in ("draws", "tokens")] for line in lines)
            assert found == line
        else:
            assert unlike(trial, best) == [], (rate, shown)
        TALLY[f"engine, {fault}: {name}"] += 1


@pytest.mark.parametrize("fault", ["raises", "breaks", "hangs"])
@pytest.mark.parametrize("name", ["train", "evaluate", "prepare"])
def test_an_engine_ends_the_command(folders, start, wanted, chance, name, fault):
    """Each time it says why, and the same command resumes, until it has come to the same end."""
    plugin = {"engine.type": "misdrawing:Misdrawing"}
    said = {
        "raises": "rollwise: it misbehaves",
        "breaks": "raised KeyError: 'it misbehaves'",
        "hangs": "(`stall_limit`): Faulty or the grader hangs",
    }[fault]
    done = 0
    while done < TIMES:
        rate = chance.choice(RATES)
        faulty = plugin | {"engine.fault": fault, "engine.rate": rate, "stall_limit": STALL_LIMIT}
        trial = Trial(name, next(folders), **faulty)
        for shown in starts_until_done(start, trial):
            assert said in shown
            done += 1
            TALLY[f"engine, {fault}: {name}"] += 1
        done += rate == RATES[0]  # it may have had no chance to fail
        best, _, _ = wanted(name, **plugin, **{"engine.fault": "right"})
        assert unlike(trial, best) == [], rate


@pytest.mark.parametrize(
    "fault", ["raises", "hangs", "returns no number", "returns NaN", "ends its process"]
)
def test_a_grader_fails_on_some_responses(folders, start, wanted, chance, fault):
    """They get no reward, and are counted; nothing else changes."""
    for _ in range(TIMES):
        plugin = {
            "grading.type": "misgrading:Misgrading",
            "grading.timeout": STALL_LIMIT,
            "grading.workers": 4,
            "grading.luck": chance.randrange(3),
            "grading.rate": chance.choice(RATES),
        }
        trial = Trial("train", next(folders), **plugin, **{"grading.fault": fault})
        _, shown = start(trial)
        best, _, _ = wanted("train", **plugin, **{"grading.fault": "zero"})
        assert unlike(trial, best) == [], (plugin, shown)
        TALLY[f"grader, {fault}"] += 1


@pytest.mark.parametrize("hangs", [False, True])
def test_a_grader_in_the_commands_own_process(folders, start, wanted, chance, hangs):
    """It answers late and out of order, or never: then the command ends, and resumes."""
    plugin = {"grading.type": "misgrading:SlowSettings"}
    best, _, _ = wanted("train", **plugin, **{"grading.rate": 0.0})
    limit = {"grading.hangs": True, "stall_limit": STALL_LIMIT} if hangs else {}
    for _ in range(TIMES):
        rate = 0.1 if hangs else chance.choice(RATES)
        trial = Trial("train", next(folders), **plugin, **limit, **{"grading.rate": rate})
        for shown in starts_until_done(start, trial):
            assert hangs and "or the grader hangs" in shown
        assert unlike(trial, best) == []
        fault = "hangs in the command's own process" if hangs else "late and out of order"
        TALLY[f"grader, {fault}"] += 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_of_the_graders_dies(folders, start, wanted, chance, number):
    """A worker, or the process that they are forked from: another one takes its place."""
    plugin = {"grading.type": "misgrading:Misgrading", "grading.workers": 2, "seed": int(number)}
    best, work, _ = wanted("train", **plugin)
    done = 0
    while done < TIMES:
        trial = Trial("train", next(folders), **plugin)
        command = trial.start()
        command.has_worked(chance.uniform(0, work))
        servers = children_of(command.pid)[:1]
        workers = [worker for server in servers for worker in children_of(server)]
        victims = chance.choice([servers, workers[:1] or servers])
        for victim in victims:
            os.kill(victim, number)
            done += 1
        code, shown = command.end()
        assert code == 0, shown
        assert unlike(trial, best) == []
        TALLY[f"{number.name} of a process of the graders"] += len(victims)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_wall_clock_jumps(folders, monkeypatch, wanted, chance, name):
    """Back and forth by up to ten years at each look: nothing is computed from it."""
    years, real, real_ns = 10 * 365 * 86400, time.time, time.time_ns
    jump = random.Random(chance.random()).uniform
    wanted(name)
    for _ in range(TIMES):
        trial = Trial(name, next(folders))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: real() + jump(-years, years))
            patch.setattr(time, "time_ns", lambda: real_ns() + int(jump(-years, years) * 1e9))
            trial.finish()
        assert alike(trial, wanted) == []
        TALLY[f"wall clock set back and forth: {name}"] += 1
