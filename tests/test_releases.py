"""Which releases of other packages are taken, and what is said of others."""

import importlib
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError

import pytest
from packaging.requirements import Requirement

from rollwise import releases


@pytest.fixture
def installed(monkeypatch, root):
    """Pretends that a release of a package is installed; None for none."""
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lines = [
        str(Requirement(line)) + (" and " if ";" in line else "; ") + f'extra == "{extra}"'
        for extra, wanted in extras["optional-dependencies"].items()
        for line in wanted
    ]

    def pretend(release):
        def version(package):
            if release is None:
                raise PackageNotFoundError(package)
            return release

        monkeypatch.setattr(releases, "version", version)
        monkeypatch.setattr(releases, "requires", lambda package: lines)

    return pretend


@pytest.mark.parametrize(
    ("package", "admitted", "tested", "others"),
    [
        ("trl", "<1.17,>=1.16", ["1.16.0", "1.16.3"], ["1.14.0", "1.15.0", "1.17.0.dev0"]),
        ("tinker", "<0.39,>=0.38", ["0.38.0"], ["0.36.0"]),
        ("verl", "<0.10,>=0.9.1", ["0.9.1"], ["0.8.3", "0.9.0", "0.10.0", "1.0.0rc1"]),
        ("verifiers", "<0.5,>=0.4", ["0.4.0"], ["0.3.1"]),
    ],
)
def test_a_release_that_is_not_tested_is_refused(installed, package, admitted, tested, others):
    for release in tested:
        installed(release)
        assert releases.unmet(package) is None
    for release in others:
        installed(release)
        assert releases.unmet(package) == (
            f"{package} {release} is installed, but rollwise is tested with {package}{admitted}: "
            f"pip install 'rollwise[{package}]'"
        )


def test_without_a_package_it_is_said_how_to_install_it(installed):
    installed(None)
    assert releases.unmet("tinker") == "tinker is not installed: pip install 'rollwise[tinker]'"


def test_the_integration_of_trl_says_so_at_import(installed, monkeypatch):
    for name in [n for n in sys.modules if n.startswith("rollwise.integrations.trl")]:
        monkeypatch.delitem(sys.modules, name)
    installed("1.13.0")
    with pytest.raises(ImportError, match=re.escape("trl 1.13.0 is installed")):
        importlib.import_module("rollwise.integrations.trl")


class Owner:
    """Has members of every kind."""

    constant = 1

    def __init__(self):
        self.made = constant = 2
        self._kept = {constant}

    def method(self, first, second, third=0):
        """Takes three."""


HERE = f"{__name__}:Owner"
THERE = [
    f"{HERE}.{name}" for name in ("constant", "made", "_kept", "method", "method(first, second)")
]
MOVED = [
    f"{HERE}.gone",
    f"{HERE}.method(second)",
    f"{HERE}Gone.method",
    "no_such_module:Owner.method",
]


def test_names_that_have_moved_are_found():
    assert releases.moved([*THERE, *MOVED, f"{__name__}:installed"]) == MOVED


def test_a_release_that_is_not_tested_is_taken_if_it_has_every_name(installed):
    installed("1.17.0")
    with pytest.warns(UserWarning, match=r"trl 1.17.0 is .*; it has every name that rollwise uses"):
        assert releases.unmet("trl", dict.fromkeys(THERE, "")) is None
    said = releases.unmet("trl", dict.fromkeys([*THERE, *MOVED[:2]], ""))
    assert f"this release lacks {MOVED[0]}, {MOVED[1]}: pip install" in said
