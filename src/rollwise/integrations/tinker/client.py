"""What differs between releases 0.36 and 0.38 of Tinker's SDK, and its errors as ours."""

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import tinker

from rollwise.errors import EngineError
from rollwise.integrations.tinker.requirements import KEY


def resolved(client: Any) -> Any:
    """Wait for a client if need be: from 0.38 on the SDK returns a future of one."""
    return client.result() if hasattr(client, "result") else client


def as_future(answer: Any) -> "Future[Any]":
    """Return the `concurrent.futures.Future` of an answer; 0.36 returns it directly."""
    future: Future[Any] = answer.future() if hasattr(answer, "future") else answer
    return future


@contextmanager
def as_engine_errors(doing: str) -> Iterator[None]:
    """Turn what the SDK raises at `doing` something, after retrying for minutes, into ours."""
    try:
        yield
    except (tinker.TinkerError, ValueError) as error:  # ValueError: an answer it cannot read
        raise EngineError(f"Tinker failed at {doing}: {describe(error)}") from error


def describe(error: Exception) -> str:
    """Describe an error in one line of at most 300 characters, fit for a log: without the key."""
    text = f"{type(error).__name__}: {error}"
    if key := os.environ.get(KEY):
        text = text.replace(key, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
