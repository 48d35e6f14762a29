"""Signals that ask a command to stop: Ctrl-C, and SIGTERM and SIGHUP, which clusters send."""

import functools
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

TERMINATING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that leave little time: the process is killed, or its terminal gone, soon after."""

STOPPING = (signal.SIGINT, *TERMINATING)
"""Signals that ask a command to stop; the command itself ends its processes."""


class Terminated(KeyboardInterrupt):
    """A signal of this number, SIGTERM or SIGHUP, has ended a command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Dropped(KeyboardInterrupt):
    """Work that could be done again is dropped, because the process must end."""


@contextmanager
def _handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle signals in this block, unless they are ignored; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {
        number: signal.signal(number, handler)
        for number in numbers
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Overdue(KeyboardInterrupt):
    """Work that an `alarm` watches has taken too long; `loops.run` raises `error` in its place."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def alarm(seconds: float, error: Exception) -> Iterator[Callable[[], object]]:
    """Raise `Overdue`, by SIGALRM, once this block has taken `seconds`; only in the main thread.

    Yields a function that begins the time anew.
    """
    if threading.current_thread() is not threading.main_thread() or seconds == math.inf:
        yield lambda: None
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Overdue(error)

    with _handled([signal.SIGALRM], end):
        begin = functools.partial(signal.setitimer, signal.ITIMER_REAL, seconds)
        begin()
        try:
            yield begin
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


@contextmanager
def terminated_by_signals() -> Iterator[None]:
    """In this block SIGTERM and SIGHUP raise `Terminated`, unless they are ignored (`nohup`).

    An exception that a signal raises in a finalizer is lost there, so in this block the signal is
    sent again, Ctrl-C too. Outside the main thread this does nothing.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    def send_again(lost: "sys.UnraisableHookArgs") -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            hook(lost)
            return
        other = signal.SIGTERM if isinstance(lost.exc_value, Dropped) else signal.SIGINT
        number = getattr(lost.exc_value, "number", other)
        main = threading.main_thread().ident
        again = threading.Timer(0.05, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()

    hook = sys.unraisablehook
    with _handled(TERMINATING, end):
        sys.unraisablehook = send_again
        try:
            yield
        finally:
            sys.unraisablehook = hook


@contextmanager
def held_back() -> Iterator[None]:
    """Hold `STOPPING` back in this block, and in what starts in it until it is `release`d."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def release(handler: signal.Handlers) -> None:
    """Handle `STOPPING` by `handler` in this process, which started while they were `held_back`."""
    for number in STOPPING:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


class StopRequest:
    """Turns signals into a request to stop after the current step; use it as a context manager.

    A second Ctrl-C stops at once. After SIGTERM and SIGHUP, work in a `droppable` block is dropped,
    so that there is time to save what was done before.

    Args:
        on_request: Called with the number of a signal, if it differs from the one before. It must
            not print: the signal may come in the middle of printing, and Python refuses to print
            while it is printing.

    Attributes:
        number: The number of the last signal; None if there was none.
    """

    def __init__(self, on_request: Callable[[int], None] = lambda number: None) -> None:
        self.number: int | None = None
        self._on_request = on_request
        self._must_drop = self._droppable = False
        self._handling = _handled(STOPPING, self._hear)

    def __enter__(self) -> Self:
        self._handling.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._handling.__exit__(None, None, None)

    @contextmanager
    def droppable(self) -> Iterator[None]:
        """Mark work that may be dropped; raises `Dropped` also if there is no time to begin it."""
        try:
            self._droppable = True
            self._drop_if_due()
            yield
        finally:
            self._droppable = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.number is not None:
            raise KeyboardInterrupt
        if self.number != number:
            self.number = number
            self._on_request(number)
        self._must_drop |= number in TERMINATING
        self._drop_if_due()

    def _drop_if_due(self) -> None:
        if self._droppable and self._must_drop:
            raise Dropped
