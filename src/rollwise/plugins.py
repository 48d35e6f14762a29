"""Plug-ins of your own: finding what `module:name` names, or what a program has in memory."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType, ModuleType
from typing import Any

from rollwise.errors import ConfigError, PluginError, RollwiseError, one_line, shortage

_LOADED: dict[str, ModuleType] = {}
"""The plug-ins that were loaded: the name of each in its module -> that module."""

IN_MEMORY = "in memory:"
"""How the name begins of what a program in Python has given as an object: `in memory:grade`."""

_OBJECTS: ContextVar[Mapping[str, Any]] = ContextVar("_OBJECTS", default=MappingProxyType({}))


@contextmanager
def in_memory(objects: Mapping[str, Any]) -> Iterator[None]:
    """Let names that begin with `IN_MEMORY` stand for these objects, in this block and thread."""
    token = _OBJECTS.set(objects)
    try:
        yield
    finally:
        _OBJECTS.reset(token)


def objects_in_memory() -> Mapping[str, Any]:
    """Return what names stand for objects now, and these."""
    return _OBJECTS.get()


def source_of(found: object) -> str:
    """Return the source of a function, class or object; "" if it is not known."""
    for each in (found, type(found)):
        with suppress(OSError, TypeError):
            return inspect.getsource(each)  # type: ignore[arg-type]
    return ""


def is_plugin(name: object) -> bool:
    """Return whether `name` has the form `module:name`, which no built-in name has."""
    return isinstance(name, str) and ":" in name


def plugin_folders(folder: str | None = None) -> tuple[str, ...]:
    """List the folders to search before Python's path: `folder`, then the current one."""
    here = os.getcwd()
    return (here,) if folder in (None, here) else (str(folder), here)


def load_plugin(name: str, folders: Sequence[str], what: str = "class") -> Any:
    """Import what `module:name` names, from these folders or Python's path.

    The folders stay at the front of Python's path. A `ConfigError` says `what` was looked for, such
    as a `class`, where, and what there is. Whatever the module raises on import is passed on.
    """
    if name.startswith(IN_MEMORY):
        if name not in _OBJECTS.get():
            raise ConfigError(
                f"`{name.removeprefix(IN_MEMORY)}` was given in a Python program, and only its "
                "source is kept: resume from Python, and give it again"
            )
        return _OBJECTS.get()[name]
    kind = what.split()[-1]
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise ConfigError(f"a {what} must be given as module:{kind}, got {name!r}")
    if module_name == "__main__":
        advice = f"put the {kind} in a module of its own"
        raise ConfigError(f"{name!r}: worker processes do not run your script; {advice}")
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
    """Describe an error by the method of a plug-in that it came through; "" if there is none."""
    files = {getattr(module, "__file__", None) for module in _LOADED.values()}
    frames = traceback.walk_tb(error.__traceback__)
    if own := [(f.f_code, line) for f, line in frames if f.f_code.co_filename in files]:
        (called, _), (last, line) = own[0], own[-1]
        owner, _, method = called.co_qualname.rpartition(".")
        module = inspect.getmodulename(called.co_filename)
        place = f"{last.co_filename}, line {line}"
    else:  # it may have refused its arguments: "Class.method() takes 2 positional arguments"
        owner, _, method = str(error).partition("(")[0].partition(".")
        if not isinstance(error, TypeError) or owner not in _LOADED:
            return ""
        module = _LOADED[owner].__name__
        place = _place(getattr(_LOADED[owner], owner), method)
    name = ":".join(filter(None, [module, owner]))
    return f"{name}: `{method}` ({place}) raised {one_line(error)}"


@contextmanager
def naming_plugins() -> Iterator[None]:
    """Turn an error that came through a plug-in in this block into one that names its method."""
    try:
        yield
    except Exception as error:
        said = raised_in_plugin(error)
        if isinstance(error, RollwiseError) or shortage(error) or not said:
            raise
        raise PluginError(said) from error


def wrong_result(plugin: object, method: str, wanted: str, got: object) -> PluginError:
    """Make the error for a plug-in's method that did not return what is `wanted`."""
    return PluginError(
        f"{plugin_name(plugin)}: `{method}` ({_place(type(plugin), method)}) must return {wanted}, "
        f"got {type(got).__name__}: {got!r:.100}"
    )


def _place(kind: type, method: str) -> str:
    """Return file and line of a method, or of its class if it is not written in Python."""
    found: Any = getattr(kind, method, None)
    for each in (getattr(found, "fget", found), kind):
        with suppress(OSError, TypeError):
            return f"{inspect.getsourcefile(each)}, line {inspect.getsourcelines(each)[1]}"
    return "no source"


def _import(module_name: str, name: str, folders: Sequence[str]) -> ModuleType:
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except SystemExit as error:
        said = f"importing {module_name} ended in exit({error.code})"
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        said = f"no module {error.name!r} in {' or '.join(folders)} or on Python's path"
    raise ConfigError(f"{name!r}: {said}")
