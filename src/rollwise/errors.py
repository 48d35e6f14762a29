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


class MissingDataError(DataError):
    """A data set is not there, or is out of reach."""


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


SHORTAGES = {
    errno.ENOSPC: "free space where the output goes; what was saved is kept",
    errno.EMFILE: "allow more open files (`ulimit -n 1024`)",
    errno.ENAMETOOLONG: "the name is too long for a file",
    errno.ENFILE: "the system has too many open files",
}
"""What to do where a system has run out of something, by the number of the error."""


def shortage(error: BaseException) -> str:
    """Return what to do where the system or a device has run out of something; "" otherwise."""
    if is_out_of_memory(error):
        return (
            "there is not enough memory; lower `engine.batch_size`, `engine.max_new_tokens` or "
            "`prompts.batch_size`"
        )
    return SHORTAGES.get(getattr(error, "errno", None) or 0, "")


def half_of_a_pair(text: str) -> str:
    r"""Return the first lone surrogate of a text as JSON writes it (`\ud800`); "" if none."""
    found = re.search("[\ud800-\udfff]", text)
    return f"\\u{ord(found[0]):04x}" if found else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, of any form, means that the host or a device ran out of memory."""
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
