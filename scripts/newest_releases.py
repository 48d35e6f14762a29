"""Compare the newest releases of our dependencies with what we admit and what we pin.

    python scripts/newest_releases.py [NAME ...]

By default all dependencies of `pyproject.toml`, with those of the extras, one line each: the newest
release on pip's package index, and where it is not admitted or not the one that is pinned.
"""

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

Newest = Callable[[str], str | None]
"""Returns the newest release of a package; None if it is not known."""


def main() -> None:
    """Print a line for each package."""
    print("\n".join(lines(admitted(ROOT), pinned(ROOT), newest_on_index, sys.argv[1:])))


def admitted(root: Path) -> dict[str, SpecifierSet]:
    """Return what `pyproject.toml` admits of each package, all extras together."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    found: dict[str, SpecifierSet] = {}
    for wanted in (project["dependencies"], *project["optional-dependencies"].values()):
        for requirement in map(Requirement, wanted):
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    found.pop(canonicalize_name(project["name"]), None)
    return found


def pinned(root: Path) -> dict[str, dict[str, str]]:
    """Return the versions that the files of constraints pin: package -> file -> version."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(root.glob("constraints*.txt")):
        for line in file.read_text().splitlines():
            name, equal, version = line.partition("==")
            if equal and not name.startswith("#"):
                found.setdefault(canonicalize_name(name), {})[file.name] = version.strip()
    return found


def lines(
    admitted: Mapping[str, SpecifierSet],
    pinned: Mapping[str, Mapping[str, str]],
    newest: Newest,
    names: Iterable[str] = (),
) -> Iterable[str]:
    """Describe of each package, or of those with these names, what its newest release is."""
    for name in map(canonicalize_name, names or sorted(admitted)):
        if (release := newest(name)) is None:
            yield f"{name}: not found"
            continue
        wanted = admitted.get(name, SpecifierSet())
        notes = [] if wanted.contains(release, prereleases=True) else [f"admitted: {wanted}"]
        pins = pinned.get(name, {}).items()
        notes += [f"{file}: {version}" for file, version in pins if version != release]
        yield "; ".join([f"{name} {release}", *notes])


def newest_on_index(name: str) -> str | None:
    """Ask pip for the newest release that runs here."""
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
    first = answer.partition("\n")[0]  # NAME (VERSION)
    return first.partition("(")[2].rstrip(")") or None


if __name__ == "__main__":
    main()
