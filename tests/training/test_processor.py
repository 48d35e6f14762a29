"""Processor seconds: of this process, and of those that it has started."""

import sys
import time
from multiprocessing import get_context

import pytest

from rollwise.training import processor
from rollwise.training.processor import ProcessorClock

WORK = 0.15
"""Processor seconds, far more than a tick of the clock (0.01)."""


def work():
    began = time.process_time()
    while time.process_time() - began < WORK:
        pass


def test_a_lap_counts_what_was_done_since_the_last():
    clock = ProcessorClock()
    work()
    assert clock.lap() >= 0.9 * WORK
    assert clock.lap() < 0.9 * WORK


def working(ready, done):
    work()
    ready.set()
    done.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="live children are seen on Linux alone")
def test_a_child_counts_while_it_lives_and_once(monkeypatch, tmp_path):
    fork = get_context("fork")
    ready, done = fork.Event(), fork.Event()
    clock = ProcessorClock()
    child = fork.Process(target=working, args=(ready, done))
    child.start()
    ready.wait()
    assert clock.lap() >= 0.9 * WORK
    done.set()
    child.join()
    assert clock.lap() < 0.9 * WORK
    monkeypatch.setattr(processor, "PROCESSES", tmp_path)  # where nothing is to be seen
    ProcessorClock().lap()
