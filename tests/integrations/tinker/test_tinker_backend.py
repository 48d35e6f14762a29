"""The unmodified SDK against a local server of its protocol, over HTTP."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tinker")

import tinker
import torch

from rollwise.cli import main
from rollwise.config import make_config
from rollwise.errors import EngineError
from rollwise.integrations.tinker.learner import FILE, TinkerLearner
from rollwise.models.loading import load_model
from rollwise.records import RunFolder
from rollwise.step import Example, Response
from rollwise.training.learner import Learner

pytestmark = pytest.mark.tinker

SERVER = Path(__file__).with_name("server.py")

TINY = {
    "method": "reinforce_ada",
    "backend.type": "tinker",
    "model.lora_rank": 4,
    "prompts.batch_size": 4,
    "data.problems": 32,
    "data.max_terms": 4,
    "schedule.rounds": 2,
    "evaluation.problems": 8,
    "evaluation.samples": 2,
}

FOR_THE_EXAMPLE = {  # instead of what the local server and this machine do not have
    "steps": 2,
    "model.path": "running-sums",
    "data.train": "running-sums",
    "data.instruction": "",
    "prompts.batch_size": 4,
    "engine.max_new_tokens": 32,
    "evaluation.problems": 4,
}


@pytest.fixture(scope="module")
def port():
    command, environment = [sys.executable, str(SERVER)], os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture(autouse=True)
def address_and_key(port, monkeypatch):
    """What the SDK finds in the environment."""
    monkeypatch.setenv("TINKER_BASE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-the-tests")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@pytest.fixture
def train(monkeypatch):
    """Runs `rollwise train` at Tinker without its report, with tiny settings; returns its code."""
    monkeypatch.setattr("rollwise.commands.train.write_report", lambda path: path / "report.html")
    monkeypatch.setattr("rollwise.commands.train.LiveReport.step_ended", lambda report: None)

    def run(folder, *arguments, given=TINY, **changed):
        named = given | {name.replace("__", "."): value for name, value in changed.items()}
        options = [part for name, value in named.items() for part in (f"--{name}", str(value))]
        return main(["train", *arguments, "--output", str(folder), *options])

    return run


def settings(**learner):
    backend = {"type": "tinker", "loss": learner.pop("loss", "ppo")}
    learner = {"mini_batches": 1, "average": "tokens"} | learner
    return make_config({"backend": backend, "model": {"lora_rank": 4}, "learner": learner})


def local(config):
    """The built-in learner, on the adapters that the server begins with."""
    torch.manual_seed(config.seed)
    return Learner(load_model(config.model)[0], config.learner)


def examples(learner, shift=0.0, advantages=(1.0, -0.5, 0.0), seed=0):
    """Responses at random, drawn `shift` (per token, either way) from the learner's probability."""
    rng = np.random.default_rng(seed)
    bare = [
        Example(
            rng.integers(2, 17, 5).tolist(),
            Response(rng.integers(2, 17, length).tolist(), np.zeros(length, np.float32)),
            advantage,
        )
        for length, advantage in zip((7, 4, 9, 2, 5, 7), advantages, strict=False)
    ]
    with torch.no_grad():
        logprobs = learner._forward(bare)[0].numpy()
    drawn = logprobs - shift * rng.choice([-1.0, 1.0], len(logprobs)).astype(np.float32)
    rows = np.split(drawn, np.cumsum([example.response.drawn for example in bare])[:-1])
    return [with_logprobs(example, row) for example, row in zip(bare, rows, strict=True)]


def with_logprobs(example, logprobs, advantage=None):
    advantage = example.advantage if advantage is None else advantage
    return Example(example.prompt, replace(example.response, logprobs=logprobs), advantage)


@pytest.mark.parametrize(
    "loss, average",
    [("ppo", "tokens"), ("importance_sampling", "tokens"), ("importance_sampling", "responses")],
)
def test_an_update_is_that_of_the_built_in_learner(loss, average):
    config = settings(learning_rate=1e-3, warmup_updates=2, loss=loss, average=average)
    ours, theirs = local(config), TinkerLearner(tinker.ServiceClient(), config)
    for shift in (0.0, 0.1):  # where weights differ, the ratio is the built-in importance weight
        batch = examples(ours, shift, (1.0, -0.5, 0.0, 2.0, 0.3, -1.0))
        expected, found = ours.learn(batch), theirs.learn(batch)
        for name in ("loss", "sampler_gap", "importance_weight"):
            assert found[name] == pytest.approx(expected[name], abs=1e-4)
    assert theirs.updates == ours.updates == 2
    again = examples(ours)
    # Both have learnt the same: of new responses they say the same, to the precision of floats.
    assert theirs.learn(again)["sampler_gap"] < 1e-4
    assert local(config).learn(again)["sampler_gap"] > 1e-2


def test_each_mini_batch_with_signal_is_an_update():
    learner = TinkerLearner(tinker.ServiceClient(), settings(mini_batches=2))
    told = learner.learn(examples(local(settings()), advantages=(0.0, 0.0)))
    assert (learner.updates, told["loss"], told["importance_weight"]) == (0, 0, 1)
    learner.learn(examples(local(settings())))  # the second has no advantage
    assert learner.updates == 1
    learner.learn(examples(local(settings()), advantages=(1.0, -1.0)))
    assert learner.updates == 3


def test_tokens_beyond_the_clip_teach_nothing():
    config = settings(learning_rate=1e-2, warmup_updates=0)
    model = local(config)
    learner = TinkerLearner(tinker.ServiceClient(), config)
    same = examples(model, advantages=(1.0,))
    rarer = same[0].response.logprobs - 0.5
    assert learner.learn([with_logprobs(same[0], rarer)])["clip_fraction"] == 1
    assert learner.learn(same)["sampler_gap"] < 1e-4  # nothing has moved
    assert learner.learn([with_logprobs(same[0], rarer, advantage=-1.0)])["clip_fraction"] < 1


def test_a_checkpoint_holds_weights_and_optimizer(tmp_path):
    config = settings(learning_rate=1e-2, warmup_updates=0, loss="importance_sampling")
    service, model = tinker.ServiceClient(), local(config)
    first, second, third = (examples(model, seed=seed) for seed in range(3))
    learner = TinkerLearner(service, config)
    learner.learn(first)
    learner.save(tmp_path)
    went_on = [learner.learn(second), learner.learn(third)]
    other = TinkerLearner(service, config)
    other.load(tmp_path)
    for expected, found in zip(went_on, [other.learn(second), other.learn(third)], strict=True):
        assert found == pytest.approx(expected, abs=1e-4)
    other = TinkerLearner(service, config)
    assert other.learn(third)["sampler_gap"] < went_on[1]["sampler_gap"] / 2
    (tmp_path / FILE).write_text('{"path": "tinker://nobody/weights/none"}')
    with pytest.raises(EngineError, match="tinker://nobody/weights/none"):
        other.load(tmp_path)


def test_a_run_resumes_from_its_checkpoint(tmp_path, train):
    """Responses end by themselves, or at the limit."""
    assert train(tmp_path / "run", steps=2, engine__max_new_tokens=9) == 0
    assert train(tmp_path / "run", "--resume", steps=3) == 0
    lines = RunFolder(tmp_path / "run").read_metrics()
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert 0 < sum(line["truncated"] for line in lines[1:3]) < 2
    newest = tmp_path / "run/checkpoints/step-000003"
    assert {path.name for path in newest.iterdir()} == {
        *("tinker.json", "state.json", "sampler.safetensors", "model", "run", "checksums.txt")
    }
    assert json.loads((newest / "state.json").read_text())["updates"] >= 3


def test_no_access_is_told_without_the_key(tmp_path, train, monkeypatch, capsys):
    monkeypatch.setenv("TINKER_API_KEY", "tml-a-wrong-key")
    assert train(tmp_path / "run", steps=1) == 2
    said = capsys.readouterr().err
    assert "401" in said and "tml-a-wrong-key" not in said
    monkeypatch.delenv("TINKER_API_KEY")
    assert train(tmp_path / "run") == 2
    assert "TINKER_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"engine__temperature": "0.7"}, "`engine.temperature` must be 1"),
        ({"engine__type": "vllm"}, "`engine.type` must be 'transformers'"),
        ({"model__lora_rank": "0"}, "`model.lora_rank` must be at least 1"),
        ({"learner__entropy_coefficient": "0.1"}, "`learner.entropy_coefficient`"),
        ({"backend__base_model": "of-nobody"}, "there is no model of-nobody"),
    ],
)
def test_what_does_not_go_is_refused(tmp_path, train, capsys, changed, said):
    assert train(tmp_path / "run", steps=1, **changed) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_example_trains(root, tmp_path, train):
    assert train(tmp_path / "run", str(root / "examples/tinker.toml"), given=FOR_THE_EXAMPLE) == 0
    lines = RunFolder(tmp_path / "run").read_metrics()
    assert [line["trained_groups"] > 0 for line in lines[1:]] == [True] * 2
