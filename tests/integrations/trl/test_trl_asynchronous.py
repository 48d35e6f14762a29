"""TRL's asynchronous trainer with rollwise's worker; what needs a GPU is a stand-in."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("openai")

from datasets import Dataset
from policy_server import LONGEST, PolicyOfServer, flash_attn_varlen_func
from tiny_runs import ON_CPU, PROBLEMS, is_correct, logged, weights_of
from trl.experimental.async_grpo import (
    AsyncGRPOConfig,
    AsyncGRPOTrainer,
    async_grpo_trainer,
    packing,
)

from rollwise.beliefs.state import saveable
from rollwise.config import ModelSettings
from rollwise.errors import ConfigError
from rollwise.integrations.trl import grpo_config
from rollwise.integrations.trl.asynchronous import SessionRolloutWorker
from rollwise.models.loading import load_model, model_path

pytestmark = pytest.mark.trl

UPDATE = 4
STALE = 2
MODEL = str(model_path("running-sums"))


@pytest.fixture(scope="module")
def shared_server():
    server = PolicyOfServer()
    yield server
    server.close()


@pytest.fixture
def server(shared_server, monkeypatch):
    kernel = type("Kernel", (), {"flash_attn_varlen_func": staticmethod(flash_attn_varlen_func)})
    monkeypatch.setattr(packing, "_flash_attn", lambda: kernel)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    shared_server.forget()
    shared_server.transfers.clear()
    return shared_server


@pytest.fixture
def make(server, tmp_path):
    """Makes a worker and its trainer: `make(rewards, method="grpo", max_steps=2)`."""

    def make(rewards=is_correct, callbacks=None, folder=tmp_path, worker=None, **changed):
        settings = {
            "output_dir": str(folder),
            "max_steps": 4,
            "per_device_train_batch_size": UPDATE,
            "gradient_accumulation_steps": 1,
            "max_completion_length": LONGEST,
            "max_staleness": STALE,
            "learning_rate": 1e-3,
            "vllm_server_base_url": server.url.removesuffix("/v1"),
            **ON_CPU,
        }
        args = grpo_config(kind=AsyncGRPOConfig, **settings | changed)
        rows = [{"prompt": p.messages[0]["content"], "answer": p.answer} for p in PROBLEMS]
        data, tokenizer = Dataset.from_list(rows), load_model(ModelSettings())[1]
        made = SessionRolloutWorker(MODEL, rewards, args, data, tokenizer, **worker or {})
        trainer = AsyncGRPOTrainer(
            model=MODEL,
            args=args,
            train_dataset=data,
            processing_class=tokenizer,
            rollout_worker=made,
            callbacks=[made] if callbacks is None else callbacks,
            weight_transfer=server,
        )
        return made, trainer

    return make


def test_the_trainer_learns_from_single_responses_compared_with_the_belief(make, server):
    worker, trainer = make()
    seen, put = [], worker.rollout_buffer.put
    worker.rollout_buffer.put = lambda sample: (seen.append(sample), put(sample))
    before = weights_of(trainer)
    trainer.train()
    assert server.transfers[:2] == ["init", "weights"] and server.transfers[-1] == "destroy"
    assert trainer.state.global_step == 4 and len(seen) >= 4 * UPDATE
    assert {sample.metrics["reward"] for sample in seen} == {0.0, 1.0}
    assert all((s.metrics["reward"] > 0.5) == (s.advantage > 0) for s in seen)
    assert max(logged(trainer, "sample/staleness_max")) <= STALE
    assert len({sample.group_id for sample in seen}) == len(seen)
    assert set(logged(trainer, "rollwise/draws")) == {UPDATE}
    assert not logged(trainer, "sample/dropped_stale_total")
    versions = [sample.model_version for sample in seen]
    assert set(versions) <= {*range(1, 6)} and max(versions) > 1
    # What the server drew has the probability that the trainer computes, before the first update.
    assert logged(trainer, "ratio")[0] == pytest.approx(1.0, abs=1e-3)
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    changed = weights_of(trainer)
    assert any(not torch.equal(value, before[name]) for name, value in changed.items())
    sent = dict(server.model.named_parameters())
    for name, value in trainer.model.named_parameters():
        torch.testing.assert_close(sent[name], value.detach())


def length(completions, **others):
    return [len(text) / 100 for text in completions]


def test_responses_count_alike_where_the_method_averages_over_them(make, capsys):
    """A group's advantages times its responses' lengths sum to 0, as GRPO's advantages do."""
    options = {"method": "grpo", "settings": {"prompts": {"type": "cdas"}}}
    worker, trainer = make(length, num_generations=2, worker=options)
    said = "rollwise: grpo; 2 prompts an update, 2 responses each; other than tested: "
    assert said in (line := capsys.readouterr().out)
    assert "num_generations 2 (4)" in line and "prompts.type 'cdas'" in line
    assert worker._recipe.average == "responses" and worker._prompts == UPDATE // 2
    worker._recipe = replace(worker._recipe, normalize_gradients=False)
    make_samples, seen = worker._samples, []
    worker._samples = lambda *given: seen.append(list(make_samples(*given))) or seen[-1]
    trainer.train()
    pairs = [pair for samples in seen for pair in zip(samples[::2], samples[1::2], strict=True)]
    for one, other in pairs:
        assert one.group_id == other.group_id
        lengths = [int(sample.completion_mask.sum()) for sample in (one, other)]
        assert one.advantage * lengths[0] == pytest.approx(-other.advantage * lengths[1])
        assert (one.advantage == 0) == (one.metrics["reward"] == other.metrics["reward"])
    assert any(abs(a.advantage) != abs(b.advantage) for a, b in pairs)


def test_a_reward_that_is_not_0_or_1_ends_training_with_the_way_out(make):
    _, trainer = make([is_correct, length])
    with pytest.raises(
        RuntimeError, match=r"failed: single responses need rewards of 0 and 1.*grpo"
    ):
        trainer.train()


async def sometimes(completions, **others):
    return [None if len(text) % 2 else 0.5 for text in completions]


def test_one_function_says_what_is_correct_and_the_others_are_logged(make):
    worker, trainer = make([is_correct, sometimes], worker={"correctness": "is_correct"})
    trainer.train()
    assert not worker._thread.is_alive()
    assert logged(trainer, "reward") == logged(trainer, "rewards/is_correct")
    assert set(logged(trainer, "rewards/sometimes")) <= {0.5, None}


def test_a_resumed_run_has_the_belief_of_its_checkpoint(make, tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    make(**saved)[1].train()
    worker, trainer = make(**{**saved, "max_steps": 4})
    before, start = saveable(worker.prompt_sampler), worker.start
    kept = []
    worker.start = lambda: kept.extend(
        [worker.sampling_steps, saveable(worker.prompt_sampler), start()]
    )
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    steps, state, _ = kept
    assert steps >= 2 and worker.sampling_steps > steps
    assert any(not np.array_equal(state[name], before[name]) for name in state)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("`top_p` must be 1.*it is 0.9", {"top_p": 0.9}),
        ("must hold 404 prompts.*it has 24", {"max_staleness": 100}),
        ("`group.zero_variance` must be", {"worker": {"method": "dapo"}}),
        ("correctness must be the name of", {"worker": {"correctness": "format"}}),
        ("correctness is for single", {"worker": {"method": "grpo", "correctness": "is_correct"}}),
        ("`method` should be one of", {"worker": {"method": "ppo"}}),
    ],
)
def test_what_the_worker_cannot_follow_is_refused(make, message, options):
    with pytest.raises((ConfigError, ValueError), match=message):
        make(**options)


def test_a_worker_that_is_no_callback_says_so(make):
    with pytest.raises(RuntimeError, match=r"callbacks=\[worker\]"):
        make(callbacks=[])[1].train()


def test_a_worker_that_is_stuck_is_noticed(make):
    worker, _ = make()
    worker.check_health(stale_after_s=100)
    with pytest.raises(RuntimeError, match="has been stuck for"):
        worker.check_health(stale_after_s=-1)
