"""Which releases of TRL are taken, and what is said of others."""

import importlib
import importlib.metadata
import re
import sys
import tomllib

import pytest


@pytest.fixture
def import_with(monkeypatch):
    """Imports the integration as if TRL had another version, or none."""

    def load(release):
        version = importlib.metadata.version

        def installed(name):
            if name != "trl":
                return version(name)
            if release is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return release

        for name in [n for n in sys.modules if n.startswith("rollwise.integrations.trl")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(importlib.metadata, "version", installed)
        return importlib.import_module("rollwise.integrations.trl")

    return load


@pytest.mark.parametrize(
    "release", ["0.29.1", "1.15.0", "1.17.0", "2.0.0", "1.17.0.dev0", "1.16.0rc1", "0"]
)
def test_another_release_is_refused_with_a_sentence_that_says_which_are_tested(
    import_with, release
):
    said = re.escape(
        "rollwise.integrations.trl is tested with trl 1.0 to 1.16 except 1.15, "
        f"and this is trl {release}: "
        'pip install "trl>=1.0,!=1.15.*,<1.17"'
    )
    with pytest.raises(ImportError, match=f"^{said}$"):
        import_with(release)


def test_without_trl_it_says_how_to_install_it(import_with):
    with pytest.raises(ImportError, match=re.escape('pip install "rollwise[trl]"')):
        import_with(None)


@pytest.mark.trl
@pytest.mark.parametrize("release", ["1.0.0", "1.9.2", "1.16.0", "1.16.3"])
def test_the_releases_between_are_taken(import_with, release):
    pytest.importorskip("trl")
    assert import_with(release).AdaptiveGRPOTrainer


def test_the_extra_takes_the_same_releases(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "trl>=1.0,!=1.15.*,<1.17" in project["project"]["optional-dependencies"]["trl"]
