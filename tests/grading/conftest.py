"""Lets workers find `evaluating` and `loading`, however pytest imports the tests; and a sandbox."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from rollwise.errors import ConfigError
from rollwise.grading.code import _load
from rollwise.grading.conversation import check_sandbox
from rollwise.grading.sandbox import ProgramLimits

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def int_digits():
    """Loading the grader of programs lifts Python's limit, in workers and in tests of it."""
    limit = sys.get_int_max_str_digits()
    yield
    sys.set_int_max_str_digits(limit)


@pytest.fixture(scope="session")
def works():
    """Skips where bubblewrap cannot run at all; a leak is no reason to skip."""
    try:
        check_sandbox()
    except ConfigError as error:
        if "leaves open" in str(error):
            raise
        pytest.skip(f"bubblewrap does not run here: {error}")


@pytest.fixture(scope="session")
def grade(works):
    """Grades a program in this process, so that what keeps tests from running is raised."""
    return lambda code, tests: _load(ProgramLimits(30.0))(
        f"```python\n{textwrap.dedent(code)}\n```",
        tests if isinstance(tests, str) else json.dumps(tests),
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory; Python's path is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path
