"""Which releases of other packages rollwise's own metadata admits, and which are installed."""

from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet


def admitted(package: str, extra: str) -> SpecifierSet:
    """Return the releases of a package that an extra of rollwise asks for on this machine."""
    for each in map(Requirement, requires("rollwise") or ()):
        if each.marker is None or not each.marker.evaluate({"extra": extra}):
            continue
        if each.name == package:
            return each.specifier
    return SpecifierSet()


def unmet(package: str) -> str | None:
    """Say in a sentence why a package cannot be used; None if an admitted release is installed.

    Args:
        package: Its name, which is also the name of the extra that asks for it.
    """
    install = f"pip install 'rollwise[{package}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        return f"{package} is not installed: {install}"
    wanted = admitted(package, package)
    if wanted.contains(found, prereleases=True):
        return None
    return (
        f"{package} {found} is installed, but rollwise is tested with {package}{wanted}: {install}"
    )
