"""What verl's trainers do with the reports of their workers, without a run."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from datasets import Dataset
from reports_by_hand import make_report
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from rollwise.config.step import step_recipe
from rollwise.errors import RunError
from rollwise.integrations.verl import trainer as trainer_module
from rollwise.integrations.verl.data import read_prompts
from rollwise.integrations.verl.records import Recorder
from rollwise.integrations.verl.settings import train_config
from rollwise.integrations.verl.trainer import SeparateAsyncTrainer, heldout_figures
from rollwise.integrations.verl.upstream import UPSTREAM
from rollwise.releases import moved

pytestmark = pytest.mark.verl

BASE = "verl.trainer.ppo.v1.trainer_base.PPOTrainer"


def asked(text):
    return [{"role": "user", "content": text}]


def test_every_name_of_verl_s_is_where_the_table_says(monkeypatch):
    assert moved(UPSTREAM) == []
    monkeypatch.delattr(BASE + "._update_actor")
    monkeypatch.setattr(ReplayBuffer, "_materialize_batch", lambda self, partition_id: None)
    first, second = moved(UPSTREAM)
    assert first.endswith("PPOTrainer._update_actor(batch, metrics)")
    assert "ReplayBuffer._materialize_batch(" in second


def test_a_step_is_logged_with_its_evaluation(trainer, monkeypatch):
    monkeypatch.setattr(SeparateAsyncTrainer.__mro__[2], "on_step_end", _nothing)
    monkeypatch.setattr(SeparateAsyncTrainer.__mro__[2], "on_validate_end", _nothing)
    heldout = {"avg@2": {"value": 0.5}}
    trainer.recorder.begin(0, None)
    trainer.total_training_steps, trainer._heldout = 4, heldout
    for end in (trainer.on_step_end, trainer.on_validate_end):
        end()
    _, line = trainer.recorder.folder.read_metrics()
    assert (line["step"], line["draws"], line["heldout"]) == (4, 3, heldout)


def test_a_data_set_of_ours_or_of_others_names_and_describes_its_prompts():
    features = json.dumps({"level": 3, "pass_rate": 0.25})
    ours = [
        {"prompt": asked("a"), "extra_info": {"key": "k1", "features": features}},
        {"prompt": asked("b"), "extra_info": {"key": "k2", "features": "{}"}},
    ]
    columns = {"level": [3, None], "pass_rate": [0.25, None]}
    assert read_prompts(Dataset.from_list(ours), "prompt") == ({"k1": 0, "k2": 1}, columns)
    others = [{"prompt": asked(text)} for text in "aba"]
    places, columns = read_prompts(Dataset.from_list(others), "prompt")
    assert (list(places.values()), columns) == ([0, 1], {"level": [None, None]})
    others = [{"prompt": asked("a"), "extra_info": {"level": 5}}]
    assert read_prompts(Dataset.from_list(others), "prompt")[1] == {"level": [5]}


def make_sampler(trainer):
    return trainer.settings.prompts.make(list("abcdef"), 0, [None] * 6)


@pytest.fixture
def trainer(tmp_path):
    """A trainer of six prompts, as verl's setup leaves it, without engines and workers."""
    trainer = object.__new__(SeparateAsyncTrainer)
    trainer._sample_start = trainer._step_sample_wait_seconds = 0.0
    exit_rule, group = {"give_up_below": 0.1}, {"size": 2}
    prompts, keys = {"type": "cdas", "batch_size": 2}, list("abcdef")
    trainer.settings = train_config(
        {"method": "reinforce_ada", "prompts": prompts, "exit": exit_rule, "group": group}
    )
    trainer.recipe = step_recipe(trainer.settings)
    trainer.places = {key: place for place, key in enumerate(keys)}
    trainer.sampler = make_sampler(trainer)
    trainer.train_dataset = [{"raw_prompt": asked(key), "n": torch.tensor([0])} for key in keys]
    trainer.global_steps = 4
    trainer.config = SimpleNamespace(
        trainer=SimpleNamespace(default_local_dir=str(tmp_path), resume_mode="auto")
    )
    trainer.replay_buffer = SimpleNamespace(reports={}, failed=set())
    trainer._under_way, trainer._used = {}, {}
    trainer._question = str
    trainer.recorder = Recorder(trainer.settings, str(tmp_path / "run"))
    trainer.timing_raw, trainer._figures = {"gen": 1.5}, {"draws": 3, "entropy": float("nan")}
    return trainer


def _nothing(self, *arguments, **options):
    return None


def test_prompts_under_way_are_not_asked_for_again(trainer):
    first = [field["key"] for field in trainer._next_train_batch(4)["rollwise"]]
    second = [field["key"] for field in trainer._next_train_batch()["rollwise"]]
    assert sorted(first + second) == list("abcdef")
    assert sorted(trainer._under_way.values()) == list("abcdef")
    with pytest.raises(RunError, match=r"asks for 1 prompts, and 0 are left: of 6 .* 6 are under"):
        trainer._next_train_batch(1)


def test_a_step_tells_the_sampler_and_accounts_for_every_draw(trainer, monkeypatch):
    """Two mini-batches of one prompt each, and a prompt that failed."""
    keys = trainer.sampler.ask()
    trainer._under_way = {"u": keys[0], "v": keys[1], "x": "d", "y": "e"}
    trainer.replay_buffer.failed.add("x")
    parts = [
        {"u": make_report(keys[0], weights=[1, 1, 3])},
        {"v": make_report(keys[1], [1.0, 1.0, 1.0, 1.0], dropped=True)},
    ]

    def step(self, metrics, timing_raw):
        for part in parts:
            self.replay_buffer.reports = part
            self._compute_advantage(SimpleNamespace(keys=[], tags=[]), {})

    monkeypatch.setattr(f"{BASE}.step", step)
    monkeypatch.setattr(f"{BASE}._compute_advantage", _nothing)
    metrics = {}
    trainer.step(metrics, {})
    same = make_sampler(trainer)
    same.ask()
    same.tell(keys, correct=[1, 4], drawn=[3, 4])
    for name, value in same.state_dict().items():
        np.testing.assert_array_equal(trainer.sampler.state_dict()[name], value)
    figures = trainer._figures
    ledger = figures["ledger"]["draws"]
    assert ledger["trained"] + ledger["spare"] + ledger["zero_variance"] == 3 + 4
    assert (ledger["trained"], figures["trained_groups"]) == (2, 1)
    assert (figures["surplus_draws"], figures["draws"]) == (2, 9)
    assert (figures["lost_draws"], figures["failed_prompts"]) == (0, 1)
    assert figures["steps_off_policy"] == 4 - 1 - 1
    assert figures["steps_off_policy_mean"] == pytest.approx((2 + 2 + 5 * 0) / 7)
    assert figures["prompts_under_way"] == 1
    assert (figures["tokens"], figures["entropy"]) == (20, pytest.approx((1.5 + 0.5) / (3 + 1)))
    assert metrics["rollwise/exits/satisfied"] == 2.0
    assert trainer._under_way == {"y": "e"}
    assert not trainer.replay_buffer.failed


def test_a_checkpoint_holds_sampler_metrics_and_prompts_under_way(trainer, monkeypatch):
    saved, cleared = [], []
    monkeypatch.setattr(f"{BASE}._save_checkpoint", lambda self: saved.append(self.global_steps))
    trainer.sampler.tell(trainer.sampler.ask(), correct=[4, 0], drawn=[4, 8])
    trainer._under_way = {"u": "a", "v": "b", "gone": "c"}
    trainer.recorder.begin(0, None)
    trainer._save_checkpoint()
    assert saved == [4]
    state = trainer.sampler.state_dict()
    trainer.sampler, trainer._under_way = make_sampler(trainer), {}
    queued = {name: {"is_prompt": True} for name in "uv"}
    used = {"w_0_0": {}, "u_1_0": {}}
    queue = SimpleNamespace(
        kv_list=lambda partition: {"train": queued | used},
        kv_clear=lambda keys, partition_id: cleared.extend(keys),
    )
    monkeypatch.setattr(trainer_module, "tq", queue)
    trainer._load_state()
    assert trainer._under_way == {"u": "a", "v": "b"}  # those that the queue has as well
    assert cleared == ["w_0_0"]  # its step has used it; the other's session goes on
    *_, logged = trainer.recorder.folder.read_metrics()  # verl logs a step only after it
    assert (logged["step"], logged["draws"], logged["seconds"]["sampling"]) == (4, 3, 1.5)
    for name, value in state.items():
        np.testing.assert_array_equal(trainer.sampler.state_dict()[name], value)
    trainer.global_steps = 5
    with pytest.raises(RunError, match="global_step_5/rollwise"):
        trainer._load_state()


def test_each_row_gets_its_own_advantage_and_padding_none(trainer, monkeypatch):
    monkeypatch.setattr(f"{BASE}._compute_advantage", _nothing)
    first, second = make_report("a", indices=[0, 2, 5]), make_report("b", [1.0, 1.0], dropped=True)
    trainer.replay_buffer.reports = {"u": first, "v": second}
    names = ["u_2_0", "padx_0_0", "u_0_0", "v_0_0"]
    batch = SimpleNamespace(keys=names, tags=[{"is_padding": "pad" in name} for name in names])
    trainer._compute_advantage(batch, {})
    mask = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]])
    values, returns = trainer._advantages(torch.zeros(4, 3), mask, config=None, index=None)
    expected = torch.tensor([-1 / 3, 0, 2 / 3, 0])[:, None] * mask
    torch.testing.assert_close(values, expected)
    assert returns is values


def test_held_out_figures_are_the_built_in_trainers():
    figures = heldout_figures(["u", "v", "u", "v"], [1.0, 0.0, 0.0, False], 0.7)
    assert figures["avg@2"]["value"] == pytest.approx(0.25)
    assert figures["pass@2"]["value"] == pytest.approx(0.5)
    assert heldout_figures(["u", "v", "u"], [1.0, 0.0, 0.0], 0.7) is None


# The run's folder.


def test_a_run_that_starts_over_or_resumes_forgets_what_came_later(tmp_path):
    settings = train_config({})
    heldout = {"avg@2": {"value": 0.5, "low": 0.4, "high": 0.6}}

    for done, steps, kept in ((0, [1, 2, 3], 3), (2, [3, 4], 4), (0, [1], 1)):
        recorder = Recorder(settings, str(tmp_path))
        recorder.begin(done, heldout)
        for step in steps:
            recorder.folder.samples.keep([{"step": step}])
            recorder.step({"step": step, "draws": 0})
            recorder.step({"step": step})
        recorder.folder.flush_samples()
        lines = recorder.folder.read_metrics()
        assert [line["step"] for line in lines] == [0, *range(1, kept + 1)]
        assert lines[0]["heldout"] == heldout and not any("draws" in line for line in lines)
        samples = recorder.folder.samples.read().to_pylist()
        assert [row["step"] for row in samples] == [*range(1, kept + 1)]
        assert lines == sorted(lines, key=lambda line: line["elapsed"])


@pytest.mark.parametrize(("step", "begun"), [(1, [0.25]), (4, [])])
def test_beliefs_begin_at_the_validation_before_training(trainer, monkeypatch, step, begun):
    found = []
    monkeypatch.setattr(
        f"{trainer_module.__name__}.PPOTrainerSeparateAsync.on_train_begin", _nothing
    )
    monkeypatch.setattr(trainer.recorder, "begin", _nothing.__get__(trainer.recorder))
    monkeypatch.setattr(trainer.sampler, "start_at", found.append)
    trainer.global_steps, trainer._heldout = step, {"avg@4": {"value": 0.25}}
    trainer.on_train_begin()
    assert found == begun
