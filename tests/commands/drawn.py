"""Evaluations and preparations that take a second, and what is in their folders."""

import json

TINY = ["--data.problems", "12", "--samples", "4", "--portion", "4"]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def contents_of(folder):
    """All files of a folder, to the bit."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
