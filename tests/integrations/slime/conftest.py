"""The stand-in for slime, where it is looked for."""

import sys

import pytest
from slime_driver import install


@pytest.fixture(autouse=True)
def slime(monkeypatch):
    for name, module in install().items():
        monkeypatch.setitem(sys.modules, name, module)
