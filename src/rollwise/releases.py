"""Which releases of other packages rollwise's own metadata admits, and which are installed."""

from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


@cache
def requirements(extra: str) -> tuple[Requirement, ...]:
    """Return what an extra of rollwise asks for on this machine, other extras resolved."""
    found: list[Requirement] = []
    for line in requires("rollwise") or ():
        each = Requirement(line)
        if each.marker is None or not each.marker.evaluate({"extra": extra}):
            continue
        if each.marker.evaluate({"extra": ""}):
            continue  # asked for without an extra
        if each.name == "rollwise":
            found += [one for other in sorted(each.extras) for one in requirements(other)]
        else:
            found.append(each)
    return tuple(found)


def unmet(package: str) -> str | None:
    """Say in a sentence why a package cannot be used; None if an admitted release is installed.

    Args:
        package: Its name, which is that of the extra that asks for it.
    """
    install = f"pip install 'rollwise[{package}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        return f"{package} is not installed: {install}"
    [wanted] = [each.specifier for each in requirements(package) if each.name == package]
    if wanted.contains(found, prereleases=True):
        return None
    return (
        f"{package} {found} is installed, and rollwise is tested with {package}{wanted}: {install}"
    )
