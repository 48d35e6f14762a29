"""Ctrl-C, SIGTERM and SIGHUP: what they ask for, and what is dropped."""

import os
import signal
import threading

import pytest

from rollwise import signals
from rollwise.signals import TERMINATING, Dropped, StopRequest, terminated_by_signals

HANDLED = (signal.SIGINT, *TERMINATING)


@pytest.fixture(autouse=True)
def handlers_are_restored():
    before = [signal.getsignal(number) for number in HANDLED]
    yield
    assert [signal.getsignal(number) for number in HANDLED] == before


@pytest.mark.parametrize("number", TERMINATING)
def test_a_command_is_ended_as_by_ctrl_c(number):
    with pytest.raises(KeyboardInterrupt) as caught, terminated_by_signals():
        signal.raise_signal(number)
    assert isinstance(caught.value, signals.Terminated)
    assert caught.value.number == number
    assert str(caught.value) == signal.Signals(number).name


@pytest.fixture
def ctrl_c(handlers_are_restored):
    """Ctrl-C raises as it does in a terminal; a command in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Finalized:
    """Gets a signal in its finalizer, where Python loses whatever is raised."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", HANDLED)
def test_a_signal_in_a_finalizer_is_not_lost(number, ctrl_c):
    with pytest.raises(KeyboardInterrupt), terminated_by_signals():
        finalized = Finalized(number)
        del finalized
        threading.Event().wait(60)


def test_dropping_in_a_finalizer_is_not_lost():
    with terminated_by_signals(), StopRequest() as stop, pytest.raises(Dropped), stop.droppable():
        finalized = Finalized(signal.SIGTERM)
        del finalized
        threading.Event().wait(60)


@pytest.mark.parametrize("number", TERMINATING)
def test_work_is_dropped_once_a_process_must_end(number):
    """What may be dropped is; what may not goes on, and nothing droppable is begun after it."""
    done = []
    with StopRequest() as stop:
        with stop.droppable():
            done.append("drawn")
        with pytest.raises(Dropped), stop.droppable():
            signal.raise_signal(number)
            done.append("never")
        signal.raise_signal(number)
        done.append("saved")
        with pytest.raises(Dropped), stop.droppable():
            done.append("never")
    assert done == ["drawn", "saved"]
    assert stop.number == number


def test_the_first_ctrl_c_drops_nothing_and_the_second_stops_at_once():
    heard = []
    with StopRequest(on_request=heard.append) as stop:
        with stop.droppable():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(Dropped), stop.droppable():
            signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGINT, signal.SIGTERM]


def test_what_is_ignored_stays_ignored():
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminated_by_signals(), StopRequest() as stop, stop.droppable():
            signal.raise_signal(signal.SIGHUP)
        assert stop.number is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_that_starts_while_signals_are_held_back_handles_them_by_its_own_choice():
    with terminated_by_signals(), signals.held_back():
        if not (pid := os.fork()):
            for number in HANDLED:
                os.kill(os.getpid(), number)
            signals.release(signal.SIG_IGN)
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(HANDLED)
