"""Shared by all tests."""

import importlib.util
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


try:
    from hypothesis import settings
except ImportError:  # the environments of some frameworks do without
    pass
else:
    # A busy machine is slow, and nothing is wrong then.
    settings.register_profile("without deadlines", deadline=None)
    settings.load_profile("without deadlines")


if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # Under nohup the commands would ignore it too, as they should, and what is tested is the rest.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the fast tests first, and the fault suite only where it is asked for."""
    if "faults" not in config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("faults")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed wraps where a test says so, not in the middle of a long path of pytest's."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def load_script():
    """Loads a script by its name: `load_script("audit")`."""

    def load(name):
        place = ROOT / f"scripts/{name}.py"
        specification = importlib.util.spec_from_file_location(name, place)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module

    return load
