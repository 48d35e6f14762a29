"""The study: how settings are chosen, and what is compared."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from rollwise.commands.compare import file_name
from rollwise.config import CompareConfig, make_settings

OF_A_SET = ("data", "engine", "grading", "model")
"""Sections of a record in which problem sets differ."""


@pytest.fixture
def study(monkeypatch, root):
    monkeypatch.syspath_prepend(str(root / "benchmarks/study"))
    return importlib.import_module("study")


@pytest.fixture
def choosing(study):
    """Choosing without runs: a score is the sum of what each value is worth."""

    def with_worths(worths):
        made = object.__new__(study.Choosing)
        made.tried = []

        def score(method, values, tokens):
            made.tried.append((tokens, values))
            return sum(worths.get(name, {}).get(value, 0.0) for name, value in values.items())

        made.score = score
        return made

    return with_worths


def test_each_setting_is_the_best_of_its_candidates_and_the_last_one_is_widened(choosing):
    worths = {
        "learner.average": {"tokens": 0.1},
        "step.normalize_gradients": {False: 0.2},
        "learner.mini_batches": {32: 0.1, 64: 0.3},
        "learner.learning_rate": {2e-4: 0.1},
    }
    made = choosing(worths)
    found = made.choose("GRPO n=4")
    assert found["chosen"] == {
        "learner.average": "tokens",
        "step.normalize_gradients": False,
        "learner.mini_batches": 64,
        "learner.learning_rate": 2e-4,
    }
    assert [(trial["tokens"], trial["values"]) for trial in found["trials"]] == made.tried
    assert {values["learner.mini_batches"] for _, values in made.tried} == {8, 16, 32, 64}
    rates = {1e-4, 1.4e-4, 2e-4, 2.8e-4}
    assert {values["learner.learning_rate"] for _, values in made.tried} == rates


def test_every_method_chooses_from_the_same_candidates_but_what_defines_it(study, choosing):
    """Where scores are equal, as here, values beyond both ends are tried."""
    trials = {name: len(choosing({}).choose(name)["trials"]) for name in study.METHODS["methods"]}
    fixed = {name: trials.pop(name) for name in study.METHODS["fixed"]}
    assert fixed == {"FlashREINFORCE": 21}  # 2 of the others' average by response or by token
    assert set(trials.values()) == {23}


def test_what_is_recorded_are_runs_of_the_settings_that_are_chosen(study):
    """A curve that was made with other settings than the page says would be found here."""
    names = study.METHODS["methods"]
    checked = 0
    paths = {name: study.STUDY / study.slug(name) / "curves.jsonl" for name in study.PROBLEM_SETS}
    for problems, path in paths.items():
        for line in path.read_text().splitlines() if path.exists() else ():
            record = json.loads(line)
            [method] = [name for name in names if file_name(name) == Path(record["run"]).parts[1]]
            config = make_settings(
                CompareConfig,
                study.at_its_size(study.part_settings("compare", [method]), problems),
                {"base": {n: own for n, own in record["settings"].items() if n in OF_A_SET}},
            )
            expected = config.run_settings(method, record["settings"]["seed"], {})
            assert {k: record["settings"][k] for k in expected} == expected
            checked += 1
    assert checked >= 36


def test_main_effects_are_those_that_cells_were_made_of(study, monkeypatch):
    effects = importlib.import_module("study_effects")
    worths = {"n=1": 0.02, "belief": 0.03, "batch": -0.01, "worth": 0.05, "normalized": 0.1}
    rng = np.random.default_rng(0)
    cells = [
        (problems, levels, start + sum(worths.get(level, 0.0) for level in levels) + noise)
        for problems, start in (("hard", 0.2), ("easy", 0.6))
        for levels in (tuple(name.split()) for name in study.factorial_methods())
        for noise in [rng.normal(0.0, 1e-3)]
    ]
    found = effects.main_effects(cells)
    assert found.keys() == {
        "responses: n=1", "baseline: batch", "baseline: belief", "choice: posterior",
        "choice: worth", "gradients: normalized", "average: responses",
    }  # fmt: skip
    for name, effect in found.items():
        assert effect["low"] - 1e-3 < worths.get(name.split(": ")[1], 0.0) < effect["high"] + 1e-3
        assert effect["high"] - effect["low"] < 0.004
