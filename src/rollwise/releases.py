"""Which releases of other packages rollwise's own metadata admits, and which are installed."""

import inspect
import warnings
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pkgutil import resolve_name

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet


def admitted(package: str, extra: str) -> SpecifierSet:
    """Return the releases of a package that an extra of rollwise asks for on this machine."""
    wanted = map(Requirement, requires("rollwise") or ())
    fitting = (each for each in wanted if each.marker and each.marker.evaluate({"extra": extra}))
    return next((each.specifier for each in fitting if each.name == package), SpecifierSet())


def unmet(package: str, used: Mapping[str, str] | None = None) -> str | None:
    """Return in a sentence why a package, named as its extra, cannot be used; None if it can.

    With `used`, the names that rollwise uses beyond the package's public interface (`moved`),
    a release that is not tested is taken with a warning if it has all of them.
    """
    install = f"pip install 'rollwise[{package}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        return f"{package} is not installed: {install}"
    wanted = admitted(package, package)
    if wanted.contains(found, prereleases=True):
        return None
    about = f"{package} {found} is installed, but rollwise is tested with {package}{wanted}"
    if used is None:
        return f"{about}: {install}"
    if gone := moved(used):
        return f"{about}, and this release lacks {', '.join(gone)}: {install}"
    warnings.warn(f"{about}; it has every name that rollwise uses", stacklevel=2)
    return None


def moved(names: Iterable[str]) -> list[str]:
    """Return those names that the installed packages do not have.

    A name is `module:Class.member`. The member is looked up in the class, or among what its
    `__init__` sets; with parameters, as in `module:Class.method(a, b)`, it must be a method that
    takes these first.
    """
    return [name for name in names if not _exists(name)]


def _exists(name: str) -> bool:
    path, _, parameters = name.removesuffix(")").partition("(")
    try:
        found = resolve_name(path)
    except ImportError:
        return False
    except AttributeError:
        owner, _, member = path.rpartition(".")
        return ":" in owner and _exists(owner) and member in _set_by(resolve_name(owner))
    wanted = parameters.split(", ") if parameters else []
    taken = inspect.signature(found).parameters if parameters else ()
    return [each for each in taken if each != "self"][: len(wanted)] == wanted


def _set_by(owner: type) -> set[str]:
    """Return the attributes that the `__init__` of a class, or of a base, mentions."""
    made = (
        inspect.unwrap(vars(each)["__init__"])
        for each in owner.__mro__[:-1]
        if "__init__" in vars(each)
    )
    return {name for each in made for name in each.__code__.co_names}
