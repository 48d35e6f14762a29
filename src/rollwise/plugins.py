"""Plug-ins of your own: finding what `module:name` names."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rollwise.errors import ConfigError, PluginError, one_line

_LOADED: dict[str, ModuleType] = {}
"""The plug-ins that were loaded: the name of each in its module -> that module."""


def is_plugin(name: object) -> bool:
    """Say whether `name` has the form `module:name`, which no built-in name has."""
    return isinstance(name, str) and ":" in name


def plugin_folders(folder: str | None = None) -> tuple[str, ...]:
    """List the folders to search before Python's path: `folder`, then the current one."""
    here = os.getcwd()
    return (here,) if folder in (None, here) else (str(folder), here)


def load_plugin(name: str, folders: Sequence[str], what: str = "class") -> Any:
    """Import what `module:name` names.

    Args:
        name: The module's name, a colon, and a name in that module.
        folders: Where the module may be; they go to the front of Python's path and stay there, as
            the current folder does with `python -m`.
        what: What should be found, such as `class`, for the errors.

    Raises:
        ConfigError: The name has another form, or there is no such module, or it has no such
            name. The message says what was looked for, where, and what there is.
        Exception: Whatever the module raises when it is imported.
    """
    kind = what.split()[-1]
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise ConfigError(f"a {what} must be given as module:{kind}, got {name!r}")
    if module_name == "__main__":
        raise ConfigError(
            f"{name!r}: workers do not run your script again, so the {kind} must be in a module of "
            "its own"
        )
    module = _import(module_name, name, folders)
    if module_name.partition(".")[0] != "rollwise":
        _LOADED[attribute] = module
    found = getattr(module, attribute, None)
    if found is None:
        members = inspect.getmembers(module, lambda v: inspect.isfunction(v) or inspect.isclass(v))
        own = [name for name, value in members if value.__module__ == module_name]
        has = ", ".join(n for n in own if not n.startswith("_")) or f"no public {kind}"
        raise ConfigError(f"{name!r}: no {attribute!r} in module {module_name}, which has {has}")
    if not callable(found):
        raise ConfigError(f"{name!r} is not callable: {type(found).__name__}")
    return found


def plugin_name(plugin: object) -> str:
    """Return the `module:Class` of an object."""
    kind = type(plugin)
    return f"{kind.__module__}:{kind.__qualname__}"


def raised_in_plugin(error: BaseException) -> str:
    """Say which method of a plug-in an error came through, and its last line there; "" if none."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    files = {getattr(module, "__file__", None) for module in _LOADED.values()}
    own = [(code, line) for code, line in frames if code.co_filename in files]
    if not own:
        return ""
    (called, _), (last, line) = own[0], own[-1]
    owner, _, method = called.co_qualname.rpartition(".")
    name = ":".join(filter(None, [inspect.getmodulename(called.co_filename), owner]))
    return f"{name}: `{method}` ({last.co_filename}, line {line}) raised {one_line(error)}"


def called_wrongly(error: BaseException) -> str:
    """Say which method of a plug-in does not take what it was called with; "" if none."""
    owner, _, method = str(error).partition("(")[0].partition(".")
    if not isinstance(error, TypeError) or owner not in _LOADED:
        return ""
    return f"{_LOADED[owner].__name__}:{owner}: `{method}` raised {one_line(error)}"


def wrong_result(plugin: object, method: str, wanted: str, got: object) -> PluginError:
    """Make the error for a plug-in's method that did not return what is `wanted`."""
    place, kind = _place(plugin, method), type(got).__name__
    where = f" ({place[0]}, line {place[1]})" if place else ""
    return PluginError(
        f"{plugin_name(plugin)}: `{method}`{where} must return {wanted}, got {kind}: {got!r:.100}"
    )


def _place(plugin: object, method: str) -> tuple[str, int] | None:
    """Find the file and line where a method is defined, or else the class; None outside Python."""
    kind = type(plugin)
    found = getattr(kind, method, None)
    if code := getattr(getattr(found, "fget", found), "__code__", None):
        return code.co_filename, code.co_firstlineno
    try:
        return inspect.getsourcefile(kind) or "", inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return None


def _import(module_name: str, name: str, folders: Sequence[str]) -> ModuleType:
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except SystemExit as error:
        raise ConfigError(
            f"{name!r}: importing {module_name} ended in exit({error.code})"
        ) from None
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise ConfigError(
            f"{name!r}: no module {error.name!r} in {' or '.join(folders)} or on Python's path"
        ) from error
