"""What differs between releases 0.36 and 0.38 of Tinker's SDK, and its errors as ours.

The engine and the learner call the SDK through these functions only where releases differ or where
a failure has to be explained; everything else they call directly.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import tinker

from rollwise.errors import EngineError
from rollwise.integrations.tinker.requirements import KEY


def resolved(client: Any) -> Any:
    """Wait for a client if need be: from 0.38 on the SDK returns a future of one.

    Args:
        client: What a method of the SDK that makes a client returned: the client, or its future.

    Raises:
        tinker.TinkerError: The client could not be made. Call this within `as_engine_errors`.
    """
    return client.result() if hasattr(client, "result") else client


def as_future(answer: Any) -> "Future[Any]":
    """Return the `concurrent.futures.Future` of an answer; 0.36 returns it directly.

    Args:
        answer: What a method of the SDK that sends a request returned. Nothing is waited for.
    """
    future: Future[Any] = answer.future() if hasattr(answer, "future") else answer
    return future


@contextmanager
def as_engine_errors(doing: str) -> Iterator[None]:
    """Turn errors that the SDK has stopped retrying into ones that a user can act on.

    Wrap a call that the run cannot do without. The SDK itself retries for minutes after a lost
    connection or a busy server, so what it raises is final.

    Args:
        doing: What is done within, as in "creating the model", for the message.

    Raises:
        EngineError: The SDK raised; its message has what was done and the reason, without the key.
    """
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
