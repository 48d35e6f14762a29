"""The processes that train the runs of a comparison: how they are watched, and how they stop."""

import multiprocessing
import signal
import threading
import time

import pytest

from rollwise.commands import compare_runs
from rollwise.commands.compare_runs import PlannedRun, Records, share_done, train_missing
from rollwise.records import RunFolder
from rollwise.signals import Terminated, raised_after

pytestmark = pytest.mark.usefixtures("forked")


@pytest.mark.parametrize(
    ("budget", "share"),
    [({"steps": 8}, 0.25), ({"tokens": 400}, 0.5), ({"seconds": 2.0}, 1.0)],
)
def test_a_run_under_way_counts_in_part(tmp_path, budget, share):
    run = PlannedRun("runs/GRPO/seed-0", budget)
    assert share_done(tmp_path, run) == 0
    folder = RunFolder(tmp_path / run.name)
    folder.create({"seed": 0})
    folder.log({"step": 0})
    for step in (1, 2):
        folder.log({"step": step, "tokens": 100, "seconds": {"sampling": 1.0, "learning": 0.5}})
    assert share_done(tmp_path, run) == share


class Interrupted:
    """A pool whose runs take long, and whose command gets SIGTERM while it waits for them."""

    def shutdown(self, cancel_futures, wait=True):
        if wait:
            raise Terminated(signal.SIGTERM)


def deaf_at_first(heard):
    """Take the first SIGTERM as a run does; what comes then does not end by itself."""

    def hear(*_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, hear)
    heard.set()
    while True:
        time.sleep(600)


def test_runs_stop_where_the_command_is_ended_while_it_waits_for_them(monkeypatch):
    monkeypatch.setattr(compare_runs, "SECONDS_BETWEEN_LOOKS", 0.1)
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    run = context.Process(target=deaf_at_first, args=(ready,))
    run.start()
    ready.wait()
    with raised_after(60, TimeoutError("it waits")), pytest.raises(Terminated):
        compare_runs._wait_for_runs(Interrupted(), stop=False)
    run.join()
    assert run.exitcode == -signal.SIGTERM


def sleeps(path, settings):
    time.sleep(600)


def test_runs_stop_where_a_signal_ends_who_watches_them(tmp_path, monkeypatch):
    """Ctrl-C between two looks raises in the command, not in what trains."""
    monkeypatch.setattr(compare_runs, "_train", sleeps)
    monkeypatch.setattr(compare_runs, "SECONDS_BETWEEN_LOOKS", 0.1)
    runs = [PlannedRun(name, {"steps": 1}) for name in "ab"]
    training = train_missing(runs, Records(tmp_path), 2)
    assert [next(training), next(training)] == [0, 0]
    with raised_after(60, TimeoutError("it waits")):
        training.close()
    assert not multiprocessing.active_children()


def test_no_run_begins_in_a_process_where_one_was_stopped(tmp_path, monkeypatch):
    """A pool hands out the next run while one is trained; with SIGTERM it must not be trained."""
    began = []

    def train_in(folder, *_):
        began.append(folder.path.name)
        raise Terminated(signal.SIGTERM)

    monkeypatch.setattr("rollwise.commands.train.train_in", train_in)
    monkeypatch.setattr(compare_runs, "_STOPPED", threading.Event())
    assert [compare_runs._train(tmp_path / name, {}) for name in ("a", "b")] == [False, False]
    assert began == ["a"]
