"""Shared by all tests."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the fast tests first."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT
