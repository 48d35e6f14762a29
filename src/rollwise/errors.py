"""Errors that a user can act on."""

import errno
import re
import textwrap


class RollwiseError(Exception):
    """An error that a user can act on; the command line prints it without a traceback."""

    exit_code = 2
    """The exit code of the command that it ends."""


class ConfigError(RollwiseError):
    """An unknown setting, or one with an invalid value."""


class DataError(RollwiseError):
    """A data set cannot be read or used."""


class ModelError(RollwiseError):
    """A model cannot be loaded or used."""


class RunError(RollwiseError):
    """The folder of a run cannot be written, read or resumed."""


class PluginError(RollwiseError):
    """A plug-in raised an error, or returned what it must not return."""


class EngineError(RollwiseError):
    """An engine cannot be started, or does not stay alive."""


class GraderError(RollwiseError, RuntimeError):
    """The processes of a grader cannot start."""


class PolicyError(RollwiseError):
    """A policy's probabilities are no longer finite."""

    exit_code = 3


def half_of_a_pair(text: str) -> str:
    r"""Return the first lone surrogate of a text as JSON writes it, such as `\ud800`; "" if none.

    It is not a character: UTF-8 cannot encode it, and no tokenizer accepts it.
    """
    found = re.search("[\ud800-\udfff]", text)
    return f"\\u{ord(found[0]):04x}" if found else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error, of any form, means that this machine or a device ran out of memory."""
    of_torch = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    of_system = getattr(error, "errno", None) == errno.ENOMEM
    of_loader = isinstance(error, ImportError) and "failed to map segment" in str(error)
    return isinstance(error, MemoryError) or of_torch or of_system or of_loader


def printable(text: str) -> str:
    """Replace what a terminal would obey by spaces, line ends too: a text may be a model's."""
    return "".join(c if c.isprintable() else " " for c in text)


def one_line(error: BaseException) -> str:
    """Shorten a library's error to one line, for use in our own message."""
    message = textwrap.shorten(printable(str(error)), 300, placeholder=" ...")
    return f"{type(error).__name__}: {message}".removesuffix(".")
