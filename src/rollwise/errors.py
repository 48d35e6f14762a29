"""Errors that a user can act on."""

import textwrap


class RollwiseError(Exception):
    """An error that a user can act on; the command line prints it without a traceback."""


class ConfigError(RollwiseError):
    """A setting that is unknown, or has a value that it must not have."""


class DataError(RollwiseError):
    """A data set that cannot be read or used."""


class ModelError(RollwiseError):
    """A model that cannot be loaded or used."""


class RunError(RollwiseError):
    """A run's folder that cannot be written, read or gone on with."""


class EngineError(RollwiseError):
    """An engine that cannot be started, or does not stay alive."""


def one_line(error: BaseException) -> str:
    """Describe an error of a library's within a message of ours."""
    message = textwrap.shorten(str(error), 300, placeholder=" ...")
    return f"{type(error).__name__}: {message}".removesuffix(".")
