"""Tasks of reasoning-gym: which problems are made, how they are graded, and what is refused."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("reasoning_gym")

from rollwise.config import TrainConfig
from rollwise.config.reading import make_settings
from rollwise.environments.procedural import TaskSpec, find_tasks, score
from rollwise.errors import ConfigError, DataError
from rollwise.grading import ReasoningGymGrader
from rollwise.tasks.columns import feature_columns
from rollwise.training.data import read_both

MADE = """
from rollwise.environments.procedural import TaskSpec
names = "chain_sum gcd letter_counting word_sorting countdown"
print([[*TaskSpec(name).entries(3, 5, True)] for name in names.split()])
"""


def read(source, problems=24, heldout=8, **data):
    sections = {"data": {"train": source, "problems": problems, **data}}
    config = make_settings(TrainConfig, {**sections, "evaluation": {"problems": heldout}})
    return config, *read_both(config)


def answer_of(problem):
    return json.loads(problem.answer)["entry"]["answer"]


def test_weights_divide_the_problems_and_none_is_held_out_and_trained_on():
    config, train, heldout = read("reasoning-gym:chain_sum=2,gcd=1")
    assert [problem.source for problem in train] == ["chain_sum"] * 16 + ["gcd"] * 8
    questions = [problem.question for problem in (*train, *heldout)]
    assert len(set(questions)) == len(questions) == 32
    assert config.grading.type == "reasoning-gym"
    # coin_flip has few problems: those held out must be left out of what is trained on.
    _, train, heldout = read("reasoning-gym:coin_flip", 4, 8)
    assert {p.question for p in train}.isdisjoint(p.question for p in heldout)


def test_what_is_made_does_not_depend_on_the_process():
    made = [
        subprocess.run(
            [sys.executable, "-c", MADE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1] and len(made[0]) > 1000


def test_workers_grade_by_the_tasks_own_verifier():
    _, (problem, *_), _ = read("reasoning-gym:chain_sum")
    right = answer_of(problem)
    said = [f"<answer>1</answer> <answer> {right} </answer>", right, "<answer>-1</answer>"]
    with ReasoningGymGrader(workers=1) as grader:
        rewards = grader.grade(said, [problem.answer] * 3)
        assert grader.failures == 0
    assert rewards[0] == 1 and max(rewards[1:]) < 0.5  # without the tags that were asked for
    _, (plain, *_), _ = read("reasoning-gym:chain_sum", reasoning_gym_prompt="plain")
    assert score(f" {answer_of(plain)}\n", plain.answer) == 1
    assert [len(each.messages) for each in (plain, problem)] == [1, 2]


@pytest.mark.parametrize("name", ["mix.yaml", "mix.json"])
def test_a_file_of_specs_gives_levels_as_features(tmp_path, name):
    specs = [{"name": "chain_sum", "config": {"min_terms": n, "max_terms": n}} for n in (2, 4)]
    (tmp_path / name).write_text(json.dumps({"datasets": specs}))
    _, train, _ = read(f"reasoning-gym:{tmp_path / name}", 6)
    columns = feature_columns(train)
    assert columns["chain_sum.min_terms"] == [2] * 3 + [4] * 3
    assert columns["source"] == ["chain_sum"] * 6
    assert train[-1].question.count("+") + train[-1].question.count(" - ") == 3


@pytest.mark.parametrize(
    ("source", "problems", "said"),
    [
        ("chain_summ", 8, "did you mean chain_sum"),
        ("chain_sum=many", 8, "weight of chain_sum"),
        ("word_ladder", 8, "other problems in each process"),
        ("chain_sum=0", 8, "above 0"),
        ("no/such.yaml", 8, "cannot be read"),
        ("coin_flip", 1000, "coin_flip makes only .* besides those held out"),
    ],
)
def test_what_cannot_be_made_is_refused(source, problems, said):
    with pytest.raises(ConfigError, match=said):
        read(f"reasoning-gym:{source}", problems)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{min_term: 2}", "did you mean min_terms"),
        ("{seed: 2}", "must not set seed"),
        ("{min_terms: 9, max_terms: 2}", "chain_sum: .*max_terms"),
    ],
)
def test_settings_that_a_task_does_not_take_are_refused(tmp_path, config, said):
    file = tmp_path / "mix.yaml"
    file.write_text(f"datasets:\n  - {{name: chain_sum, config: {config}}}\n")
    with pytest.raises(ConfigError, match=said):
        (spec,) = find_tasks(f"reasoning-gym:{file}")
        next(spec.entries(0, 5, True))


def test_a_task_whose_verifier_refuses_its_answers_is_refused(monkeypatch):
    from reasoning_gym.arithmetic.gcd import GCDDataset

    monkeypatch.setattr(GCDDataset, "score_answer", lambda *_: 0.5, raising=False)
    with pytest.raises(DataError, match="gcd: its verifier refuses its own answer to 2 of 2"):
        [*TaskSpec("gcd").entries(0, 5, True)]


def test_an_unknown_prompt_is_refused():
    with pytest.raises(ConfigError, match="one of plain, DeepSeekZero, default"):
        read("reasoning-gym:gcd", reasoning_gym_prompt="deepseek")
