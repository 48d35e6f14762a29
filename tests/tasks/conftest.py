"""Problems read from rows, and a hub that serves them."""

import datasets
import pytest
from row_files import write_rows

from rollwise.tasks import read_problems


@pytest.fixture
def read(tmp_path):
    """Read rows by way of a JSON Lines file."""

    def read_rows(*rows, **options):
        return read_problems(write_rows(tmp_path / "data.jsonl", rows), **options)

    return read_rows


@pytest.fixture
def hub(monkeypatch):
    """A hub that serves rows; or, given an error, is out of reach."""

    def serve(rows):
        calls = []

        def load_dataset(name, split, **more):
            calls.append((name, split))
            if isinstance(rows, Exception):
                raise rows
            return datasets.Dataset.from_list(rows)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    return serve
