"""Plug-ins of your own: finding what `module:name` names."""

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rollwise.errors import ConfigError


def is_plugin(name: object) -> bool:
    """Say whether `name` has the form `module:name`, which none of ours has."""
    return isinstance(name, str) and ":" in name


def plugin_folders(folder: str | None = None) -> tuple[str, ...]:
    """List where modules are sought before Python's path: in `folder`, then the current one."""
    here = os.getcwd()
    return (here,) if folder in (None, here) else (str(folder), here)


def load_plugin(name: str, folders: Sequence[str], what: str = "class") -> Any:
    """Import what `module:name` names.

    Args:
        name: The module's name, a colon, and a name in that module.
        folders: Where the module may lie; they go to the front of Python's path and stay there, as
            the current folder does with `python -m`.
        what: What should be found, such as `class`, for the errors.

    Raises:
        ConfigError: The name has another form, or there is no such module, or nothing in it by
            that name. Says what was looked for, where, and what there is.
        Exception: Whatever the module raises when it is imported.
    """
    kind = what.split()[-1]
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"a {what} is named module:{kind}, got {name!r}")
    if module_name == "__main__":
        raise ConfigError(
            f"{name!r}: workers do not run your script again, so the {kind} must be in a module of "
            "its own"
        )
    module = _import(module_name, name, folders)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(
            f"{name!r}: no {attribute!r} in module {module_name}, which has "
            f"{', '.join(_own_names(module)) or f'no public {kind}'}"
        )
    if not callable(found):
        raise ConfigError(f"{name!r} is not callable: {type(found).__name__}")
    return found


def _import(module_name: str, name: str, folders: Sequence[str]) -> ModuleType:
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise ConfigError(
            f"{name!r}: no module {error.name!r} in {' or '.join(folders)} or on Python's path"
        ) from error


def _own_names(module: ModuleType) -> list[str]:
    """List the public functions and classes that a module defines."""
    return [
        name
        for name, value in inspect.getmembers(module)
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]
