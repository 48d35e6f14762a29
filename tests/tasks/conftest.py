"""Problems read from rows."""

import pytest
from rows import write

from rollwise.tasks import read_problems


@pytest.fixture
def read(tmp_path):
    """Read rows by way of a JSON Lines file."""

    def read_rows(*rows, **options):
        return read_problems(write(tmp_path / "data.jsonl", rows), **options)

    return read_rows
