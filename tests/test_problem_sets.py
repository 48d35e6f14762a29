"""The problem sets of `benchmarks/tasks/`: answers are right, and no problem is in two files."""

import importlib
from itertools import pairwise

import numpy as np
import pytest

from rollwise.grading import ExactGrader
from rollwise.tasks import make_running_sums, read_problems
from rollwise.tasks.running_sums import HELDOUT_SEED


@pytest.fixture
def module(monkeypatch, root):
    monkeypatch.syspath_prepend(str(root / "benchmarks/tasks"))
    return importlib.import_module


def test_a_string_is_edited_step_by_step(module, monkeypatch):
    edits = module("string_edits")
    edited = [edit("dbcae") for edit in edits.EDITS.values()]
    assert edited == ["bcae", "dbca", "bcaed", "bdcae", "eacbd", "ebcad", "abcde"]
    monkeypatch.setattr(edits, "SLIP_BY_EDIT", dict.fromkeys(edits.EDITS, 0.0))
    monkeypatch.setattr(edits, "GUESS_PER_EDIT", 0.0)
    rng = np.random.default_rng(0)
    assert edits.write_demonstration("dbcae", "RTS", rng) == "Reacbd Tacbde Secbda=ecbda\n"
    for problem in edits.make_problems(200, rng):
        text, which = problem.messages[0]["content"].removesuffix("?").split(" ")
        response = edits.write_demonstration(text, which, rng)
        assert ExactGrader().grade([response], [problem.answer]) == [1.0]


def test_there_is_one_way_through_the_open_cells(module):
    paths = module("grid_paths")
    for problem in paths.make_problems(200, np.random.default_rng(0)):
        ends, open_cells = problem.messages[0]["content"].removesuffix("?").split(" ")
        assert ends == f"{problem.answer[0]}>{problem.answer[-1]}"
        assert set(problem.answer) <= set(open_cells)
        assert len(set(problem.answer)) == len(problem.answer)
        cells = [paths.CELLS.index(letter) for letter in problem.answer]
        assert all(b in paths.NEIGHBOURS[a] for a, b in pairwise(cells))
        opened = {paths.CELLS.index(letter) for letter in open_cells}
        assert len(paths.ways_from(cells[0], opened)) == len(opened)
        edges = sum(other in opened for cell in opened for other in paths.NEIGHBOURS[cell]) / 2
        assert edges == len(opened) - 1  # connected, and without circles: a tree


@pytest.mark.parametrize("name", ["string_edits", "grid_paths"])
def test_demonstrations_fit_and_no_problem_is_in_two_files(module, tmp_path, name):
    made, rng = module(name), np.random.default_rng(0)
    responses = [made.demonstrate(rng) for _ in range(200)]
    assert all(set("".join(pair)) <= set(made.CHARACTERS) for pair in responses)
    assert all(len(response) <= made.LONGEST for _, response in responses)
    module("problem_sets").write_made(tmp_path, made.make_problems)
    keys = [
        {problem.key for problem in read_problems(tmp_path / f"{part}.parquet").problems}
        for part in ("train", "heldout", "choosing")
    ]
    assert [len(part) for part in keys] == [1024, 256, 256]
    assert len(set.union(*keys)) == 1536


def test_sums_to_choose_by_are_not_held_out(module, tmp_path):
    sets = module("problem_sets")
    assert sets.settings_of("7 to 10 terms", tmp_path) == {"data": {"min_terms": 7}}
    data = sets.settings_of("7 to 10 terms", tmp_path, choosing=True)["data"]
    chosen = {problem.key for problem in read_problems(data["heldout"]).problems}
    heldout = make_running_sums(256, min_terms=7, seed=HELDOUT_SEED)
    assert len(chosen) == 256 and data["min_terms"] == 7
    assert chosen.isdisjoint(problem.key for problem in heldout)
