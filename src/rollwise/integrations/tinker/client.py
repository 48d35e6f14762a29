"""Tinker's SDK, as its releases from 0.30 to 0.38 have it."""

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import tinker

from rollwise.errors import EngineError
from rollwise.integrations.tinker.requirements import KEY


def settled(client: Any) -> Any:
    """Wait for a client: newer releases of the SDK return a future of it, older ones itself."""
    return client.result() if hasattr(client, "result") else client


def as_future(answer: Any) -> "Future[Any]":
    """Return the `concurrent.futures.Future` of an answer, which older releases return itself."""
    future: Future[Any] = answer.future() if hasattr(answer, "future") else answer
    return future


@contextmanager
def told_as_ours(doing: str) -> Iterator[None]:
    """Turn what the SDK raises for good into an error that a user can act on.

    The SDK itself sends again what a lost connection or a busy server refused, for minutes.

    Args:
        doing: What was being done, as in "creating the model".

    Raises:
        EngineError: The SDK raised.
    """
    try:
        yield
    except (tinker.TinkerError, ValueError) as error:  # ValueError: an answer it cannot read
        raise EngineError(f"Tinker failed at {doing}: {describe(error)}") from error


def describe(error: Exception) -> str:
    """Put an error in one line, not long, and without the key."""
    text = f"{type(error).__name__}: {error}"
    if key := os.environ.get(KEY):
        text = text.replace(key, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
