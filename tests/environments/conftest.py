"""Environments as modules in the current directory, where rollwise finds them by their names."""

import importlib
import sys
import textwrap

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes an environment: `write(name, TASKSET, (old, new), ...)`."""
    monkeypatch.chdir(tmp_path)

    def write(name, text, *changes):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        sys.modules.pop(name, None)  # of another test
        importlib.invalidate_caches()
        return name

    return write
