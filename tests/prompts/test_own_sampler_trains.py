"""A sampler that writes `ask` and `tell` and nothing else is trained with, start to end."""

import json

import numpy as np
import pytest

from rollwise import PromptSampler, Retiring
from rollwise.cli import main
from rollwise.prompts.testing import PromptSamplerContract
from rollwise.training import run

SETTINGS = {
    "prompts.batch_size": "4",
    "evaluation.problems": "4",
    "evaluation.samples": "2",
    "data.problems": "12",
    "data.max_terms": "4",
    "engine.max_new_tokens": "16",
    "exit.give_up_below": "0.05",
    "group.zero_variance": "refill",
    "schedule.type": "streamed",
    "schedule.max_samples": "16",
    "checkpoint.every": "2",
}
OPTIONS = [part for name, value in SETTINGS.items() for part in (f"--{name}", value)]


class InOrder(PromptSampler):
    """Asks for prompts in turn: those just told go to the end."""

    def __init__(self, keys, batch_size, seed=0):
        self.queue, self.batch_size = list(keys), batch_size
        np.random.default_rng(seed).shuffle(self.queue)

    def ask(self, count=None, exclude=()):
        allowed = [key for key in self.queue if key not in exclude]
        return allowed[: count or self.batch_size]

    def tell(self, keys, correct, drawn):
        told = set(keys)
        self.queue.sort(key=lambda key: key in told)


class Remembering(InOrder):
    """Keeps its queue over a resumed run."""

    def state_dict(self):
        return {"queue": json.dumps(self.queue)}

    def load_state_dict(self, state):
        self.queue = json.loads(state["queue"])


class TestInOrder(PromptSamplerContract):
    def make(self, keys, batch_size, seed=0):
        return InOrder(keys, batch_size, seed)


class TestRemembering(PromptSamplerContract):
    def make(self, keys, batch_size, seed=0):
        return Remembering(keys, batch_size, seed)


class TestRememberingAndRetiring(PromptSamplerContract):
    def make(self, keys, batch_size, seed=0):
        return Retiring(Remembering(keys, batch_size, seed), 0.5, 1, keys)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Runs `rollwise train` with a sampler in the place of the one that the settings name."""
    monkeypatch.setattr("rollwise.commands.train.write_report", lambda path: path / "report.html")
    monkeypatch.setattr("rollwise.commands.train.LiveReport.step_ended", lambda report: None)

    def with_sampler(make, *arguments):
        def made(config, keys, columns):
            return make(list(keys), config.prompts.batch_size)

        monkeypatch.setattr(run, "make_sampler", made)
        assert main(["train", "--output", str(tmp_path / "run"), *OPTIONS, *arguments]) == 0
        lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return with_sampler


@pytest.mark.parametrize(
    "make",
    [InOrder, lambda keys, size: Retiring(InOrder(keys, size), 0.5, 1, keys)],
    ids=["alone", "retiring"],
)
def test_it_trains_and_resumes(train, make, caplog):
    """Streamed, refilled, with prompts given up: all that training can ask a sampler for."""
    first = train(make, "--steps", "2")
    assert "keeps no state" not in caplog.text
    metrics = train(make, "--steps", "4", "--resume")
    assert metrics[: len(first)] == first
    assert [line["step"] for line in metrics] == [0, 1, 2, 3, 4]
    assert "InOrder keeps no state: it starts over" in caplog.text
    assert all(line["pass_rate_by_expected"] == [] for line in metrics[1:])


def test_a_state_that_it_cannot_load_is_refused():
    sampler = InOrder("abc", 1)
    with pytest.raises(ValueError, match=r"^InOrder has no load_state_dict, .* holds told$"):
        sampler.load_state_dict({"told": 3})
    assert sampler.state_dict() == {}


def test_retiring_leaves_out_by_keys_where_there_are_no_places():
    sampler = Retiring(InOrder("abcd", 2), visits=1, keys="abcd")
    sampler.tell(["a", "c"], [4, 4], [4, 4])
    assert sorted(sampler.ask()) == ["b", "d"]
    assert sampler.ask(2, exclude=["b"])[0] == "d"
    assert sampler.metrics() == {"retired": 0.5, "recalled": 1}


def test_where_nothing_says_how_large_a_batch_is_retired_prompts_come_last():
    queue = InOrder("abcd", 2)
    queue.ask = lambda count=None, exclude=(): InOrder.ask(queue, count or 3, exclude)
    del queue.batch_size
    sampler = Retiring(queue, visits=1, keys="abcd")
    sampler.tell(["a", "c"], [4, 4], [4, 4])
    assert sorted(sampler.ask()) == ["b", "d"]
    sampler.tell(["b", "d"], [4, 4], [4, 4])
    assert len(sampler.ask()) == 3


def test_retiring_needs_to_know_the_prompts():
    with pytest.raises(TypeError, match=r"^InOrder has no attribute `keys`: say what"):
        Retiring(InOrder("abc", 1))
