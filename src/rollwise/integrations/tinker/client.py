"""The errors of Tinker's SDK as ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import tinker

from rollwise.engines.asynchronous import fit_for_a_log
from rollwise.errors import EngineError
from rollwise.integrations.tinker.requirements import KEY


@contextmanager
def as_engine_errors(doing: str) -> Iterator[None]:
    """Turn what the SDK raises at `doing` something, after retrying for minutes, into ours."""
    try:
        yield
    except (tinker.TinkerError, ValueError) as error:  # ValueError: an answer it cannot read
        raise EngineError(f"Tinker failed at {doing}: {describe(error)}") from error


def describe(error: Exception) -> str:
    """Describe an error in one line, without the key."""
    return fit_for_a_log(f"{type(error).__name__}: {error}", os.environ.get(KEY))
