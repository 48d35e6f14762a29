"""Mistakes in plug-ins that `rollwise train` runs into: one error, with the class and its line."""

import sys

import pytest
from small_runs import SMALL

from rollwise.cli import main

PARTS = """
from dataclasses import dataclass

import numpy as np

import rollwise as rw
from rollwise.beliefs import Belief
from rollwise.engines import Engine, EngineSettings
from rollwise.environments import EpisodeEnvironment, Turn
from rollwise.prompts import FixedSetSampler
from rollwise.sampling import Allocation
from rollwise.step import Response


@dataclass(eq=False)
class OwnBelief(Belief):
    def believe(self, indices):
        shape = np.shape(np.arange(self.total)[indices])
        return np.full(shape, 0.5), np.ones(shape)

    def learn(self, indices, correct, drawn): ...


@dataclass(eq=False)
class OwnSampler(rw.PromptSampler):
    keys: list
    batch_size: int

    def ask(self, count=None, exclude=()):
        return [key for key in self.keys if key not in exclude][: count or self.batch_size]

    def tell(self, keys, correct, drawn): ...


@dataclass(eq=False)
class OwnFixedSet(FixedSetSampler):
    def choose(self, count, exclude):
        return np.arange(count)


@dataclass(eq=False)
class OwnRule(rw.ExitRule):
    def satisfied(self, positives, negatives):
        return positives + negatives >= 4


@dataclass(eq=False)
class OwnObjective(rw.Objective):
    def advantages(self, pool, group):
        return group.rewards - pool.rewards.mean()


@dataclass(eq=False)
class OwnAllocation(Allocation):
    mean_draws, minimum, maximum = 4.0, 1, 8

    def counts(self, pass_rates):
        return np.full(len(pass_rates), 4)


@dataclass(eq=False)
class OwnSchedule(rw.Schedule):
    max_samples = 4

    def asks(self, processed):
        return processed >= 4

    def dispatcher(self):
        return rw.Rounds(4, 1).dispatcher()


@dataclass(eq=False)
class OwnEngine(EngineSettings, Engine):
    token, likely = 5, -1.0

    def open(self, inputs):
        return self

    async def complete(self, draw, prompt):
        return Response([self.token, 1], np.full(2, self.likely, np.float32), "=1")

    def load_weights(self, weights): ...


@dataclass(eq=False)
class OwnEpisode(EpisodeEnvironment):
    def begin(self, opening):
        return self

    def step(self, reply):
        return self.turn


@dataclass(eq=False)
class Mistaken(PARENT):
    """

SETTINGS = {
    "Belief": "belief.type",
    "Sampler": "prompts.type",
    "FixedSet": "prompts.type",
    "Schedule": "schedule.type",
    "Rule": "exit.type",
    "Objective": "advantage.objective",
    "Allocation": "allocation.type",
    "Engine": "engine.type",
    "Episode": "episode.type",
}
"""The setting that names a class that inherits from each of these."""


@pytest.fixture
def train_with(tmp_path, monkeypatch, capsys):
    """Trains with a mistake in a class of a module; the module's name and text, and the error."""

    def train(parent, mistake):
        module = f"of_{tmp_path.name}"  # imported once for all tests
        text = PARTS.replace("PARENT", f"Own{parent}") + mistake + "\n"
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        method = "single" if parent == "Engine" else "reinforce_ada"
        given = [
            f"--{SETTINGS[parent]}",
            f"{module}:Mistaken",
            f"--method={method}",
            "--output",
            "run",
        ]
        assert main(["train", *given, "--steps=2", *SMALL]) == 2
        return module, text, " ".join(capsys.readouterr().err.split())

    return train


@pytest.mark.parametrize(
    ("parent", "mistake", "method", "said"),
    [
        ("Belief", "def believe(self, indices): return None", "believe", "NoneType"),
        ("Belief", "def believe(self, i): return i * 0 + 1.5, i * 0 + 1.0", "believe", "(0 to 1,"),
        ("Belief", "def believe(self, i): return i * 0 + 0.5j, i * 0.0", "believe", "shape (P,)"),
        ("Belief", "kept, pace = 'pace', 1.0", "kept", "a tuple of names"),
        ("Belief", "kept, seen = ('seen',), [1]", "kept", "got str: 'seen'"),
        ("Belief", "def metrics(self): return {'a': 'b'}", "metrics", "numbers by"),
        ("Belief", "def priors(self, indices): return None", "priors", "(4, 2) of"),
        ("Belief", "kept = ('unknown',)", "kept", "attributes that it has, got str"),
        ("Belief", "def state_dict(self): return [1]", "state_dict", "list: [1]"),
        ("Belief", "def __post_init__(self): {}['x']", "__post_init__", "KeyError"),
        ("Sampler", "def ask(self, *a, **b): return ['?']", "ask", "of the data"),
        ("Sampler", "def metrics(self): return [1.0]", "metrics", "numbers by"),
        ("FixedSet", "def choose(self, n, out): return [99] * n", "choose", "from 0"),
        ("FixedSet", "def __post_init__(self): {}[self.keys[0]]", "__post_init__", "KeyError"),
        ("FixedSet", "def choose(self, n, out): return [[1], [1, 2]]", "choose", "list"),
        ("Sampler", "def pass_rate_priors(self, k): return k * 0", "pass_rate_priors", "above 0"),
        ("Sampler", "def expected_pass_rates(self, k): return 2", "expected_pass_rates", "NaN"),
        ("Sampler", "def tell(self, *a, **b): {}['x']", "tell", "KeyError: 'x'"),
        ("Sampler", "def tell(self, keys, right, n): ...", "tell", "raised TypeError"),
        ("Sampler", "def state_dict(self): return [1]", "state_dict", "list: [1]"),
        ("Sampler", "def state_dict(self): return {'a': np.array(1j)}", "state_dict", "1.j"),
        ("Schedule", "max_samples = None", "max_samples", "an integer from 1"),
        ("Schedule", "def dispatcher(self): pass", "dispatcher", "add, changed and"),
        ("Rule", "def satisfied(self, n, m): {}['x']", "satisfied", "KeyError: 'x'"),
        ("Rule", "def satisfied(self, n, m): return n / 2", "satisfied", "True or False"),
        ("Rule", "def satisfied(self, n, m): return None", "satisfied", "True or False"),
        ("Objective", "needs_variance = None", "needs_variance", "NoneType"),
        ("Objective", "def advantages(self, p, g): return [1.0]", "advantages", "got list"),
        ("Objective", "def advantages(self, p, g): return g.rewards * np.nan", "advantages", "nan"),
        ("Objective", "def advantages(self, p, g): return np.zeros(3)", "advantages", "shape"),
        ("Allocation", "def counts(self, p): return p", "counts", "integers from"),
        ("Schedule", "def asks(self, n): return None", "asks", "True or False"),
        ("Engine", "async def complete(self, d, p): return None", "complete", "NoneType: None"),
        ("Engine", "async def complete(self, d, p): {}['x']", "complete", "KeyError: 'x'"),
        ("Engine", "def complete(self, d, p): return 'a'", "complete", "a coroutine"),
        ("Engine", "likely = 0.5", "complete", "numbers, at most 0"),
        ("Episode", "turn = {'reward': 1.0}", "step", "environments.Turn, got dict"),
    ],
)
def test_a_mistake_ends_training_with_the_class_and_its_line(
    parent, mistake, method, said, tmp_path, train_with
):
    module, text, shown = train_with(parent, mistake)
    assert f"{module}:" in shown and f"`{method}`" in shown and said in shown
    if "raised" in shown and "takes" not in shown and "unexpected" not in shown:
        line = text.count("\n", 0, text.index(mistake)) + 1
        assert f"{module}:Mistaken: `{method}` ({tmp_path}/{module}.py, line {line})" in shown


def test_a_token_that_the_model_lacks_ends_training(train_with):
    shown = train_with("Engine", "token = 10**6")[2]
    assert "a response has token id 1000000; the model's end at" in shown


def test_an_engine_that_is_none_is_named(train_with):
    """One that lacks what an engine may do besides would fail late."""
    shown = train_with("Engine", "def open(self, inputs): return 'loose'")[2]
    assert "str must inherit from `rollwise.engines.Engine`" in shown


def test_a_field_without_a_value_is_named_with_the_class(train_with):
    module, _, shown = train_with("Rule", "size: int")
    assert f"`exit.size`: `{module}:Mistaken` has no default for it, so it must be set" in shown
