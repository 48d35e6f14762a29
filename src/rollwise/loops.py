"""The event loop on which engines draw and graders grade, for code that is not asynchronous."""

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any, TypeVar

from rollwise.signals import Overdue

T = TypeVar("T")

CLEANUP = 10.0
"""Seconds that interrupted work has to end."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and return its result.

    All run on one event loop, because clients of services belong to a loop; between two calls the
    loop stands still. While it is running something else, a loop of the call's own takes its place.
    In a thread that has a running loop, as in a notebook, another thread does the work; in a
    function that was called by `call_for`, the loop that it was called for.
    """
    if waiting := getattr(_THREAD, "waiting", None):
        future = asyncio.run_coroutine_threadsafe(coroutine, waiting)
        while wait([future], 1.0).not_done:
            if not waiting.is_running():  # nobody waits for it any more
                future.cancel()
        return future.result()
    loop, busy = _shared()
    if not busy.acquire(blocking=False):
        with closing(_Loop()) as own:
            return _run(own, coroutine)
    try:
        return _run(loop, coroutine)
    finally:
        busy.release()
        if loop.is_running():  # interrupted twice: what is left keeps this loop
            _shared.cache_clear()


_THREAD = threading.local()


def call_for(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in this thread, which a coroutine on `loop` waits for."""
    _THREAD.waiting = loop
    return function(*arguments)


class _Loop(asyncio.SelectorEventLoop):
    """A loop that a fork of its process does not close: what that takes out of epoll is shared."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def __del__(self) -> None:
        if self._process == os.getpid():
            super().__del__()


@functools.cache
def _shared() -> tuple[asyncio.AbstractEventLoop, threading.Lock]:
    return _Loop(), threading.Lock()


os.register_at_fork(after_in_child=_shared.cache_clear)  # a loop cannot be shared


def _run(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    task = loop.create_task(coroutine)
    if asyncio._get_running_loop() is None:
        return _finish(loop, task)
    ended = threading.Event()
    task.add_done_callback(lambda _: ended.set())
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(_finish, loop, task).result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            ended.wait(CLEANUP)  # the executor does not wait for a thread that was just starting
            raise


def _finish(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[T]") -> T:
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt as error:  # a signal's handler may raise it anywhere
        others = asyncio.all_tasks(loop) if isinstance(error, Overdue) else ()  # may block as well
        for each in (task, *others):
            each.cancel()
        loop.run_until_complete(asyncio.wait([task], timeout=CLEANUP))
        raise (error.error if isinstance(error, Overdue) else error) from None
