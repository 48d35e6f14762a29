"""Checkpoints: to the bit, without pickle, whole or not at all."""

import errno
import json

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModelForCausalLM

from rollwise.config import LearnerSettings
from rollwise.config.model import ModelSource
from rollwise.errors import ModelError, RunError
from rollwise.files import list_checkpoints
from rollwise.models.saved import load_saved
from rollwise.prompts import Uniform
from rollwise.step import Example, Response
from rollwise.training.checkpoints import (
    check_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from rollwise.training.learner import Learner

EXAMPLES = [
    Example([3, 4, 5], Response([6, 7, 1], np.full(3, -2.0, np.float32)), 1.0),
    Example([8], Response([9, 10], np.full(2, -2.0, np.float32)), -0.5),
]


def make_learner(model):
    return Learner(model, LearnerSettings(learning_rate=1e-2, warmup_updates=5))


def make_sampler(problems=20):
    return Uniform(range(problems), batch_size=6, seed=3)


@pytest.fixture
def trained(make_model):
    """A learner after two updates, and a sampler in its second epoch."""
    learner, sampler = make_learner(make_model()), make_sampler()
    for _ in range(2):
        learner.learn(EXAMPLES)
    for _ in range(5):
        sampler.ask()
    return learner, sampler


@pytest.fixture
def saved(trained, tokenizer, tmp_path):
    """The checkpoint of step 7."""
    return save_checkpoint(tmp_path, 7, trained[0], tokenizer, trained[1])


def load(path, problems=20):
    """What a new process would have."""
    learner = make_learner(AutoModelForCausalLM.from_pretrained(path / "model").eval())
    sampler = make_sampler(problems)
    return learner, sampler, load_checkpoint(path, learner, sampler)


def assert_same(learner, other):
    assert learner.updates == other.updates
    ours, theirs = learner.model.state_dict(), other.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    state, their_state = (x.optimizer.state_dict()["state"] for x in (learner, other))
    torch.testing.assert_close(state, their_state, rtol=0, atol=0)


def test_what_is_loaded_is_what_was_saved_and_resumes_alike(trained, tokenizer, tmp_path):
    learner, sampler = trained
    torch.rand(3)
    path = save_checkpoint(tmp_path, 7, learner, tokenizer, sampler)
    random_numbers = torch.rand(5)
    other, other_sampler, step = load(path)
    assert step == 7
    assert torch.equal(torch.rand(5), random_numbers)
    assert_same(other, learner)
    learner.learn(EXAMPLES), other.learn(EXAMPLES)
    assert_same(other, learner)
    assert [other_sampler.ask() for _ in range(9)] == [sampler.ask() for _ in range(9)]


def test_nothing_in_it_is_pickled(trained, tokenizer, tmp_path, monkeypatch):
    learner, sampler = trained
    monkeypatch.setattr(tokenizer, "chat_template", "{{ messages }}")
    path = save_checkpoint(tmp_path, 7, learner, tokenizer, sampler)
    files = [p for p in path.rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".safetensors", ".json", ".jinja", ".txt"}
    for file in files:
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix == ".safetensors":
            safetensors.torch.load(file.read_bytes())


@pytest.mark.parametrize("part", ["safetensors.torch.save_file", "safetensors.numpy.save_file"])
def test_a_full_disk_leaves_what_was_there(trained, tokenizer, tmp_path, monkeypatch, part):
    def refuse(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    learner, sampler = trained
    before = save_checkpoint(tmp_path, 1, learner, tokenizer, sampler)
    with monkeypatch.context() as patched:
        patched.setattr(part, refuse)
        with pytest.raises(RunError, match=r"step-000002.*No space left on device"):
            save_checkpoint(tmp_path, 2, learner, tokenizer, sampler)
        with pytest.raises(RunError):  # nor is one of the same name harmed
            save_checkpoint(tmp_path, 1, learner, tokenizer, sampler)
    assert list(tmp_path.iterdir()) == [before]
    assert_same(load(before)[0], learner)
    assert save_checkpoint(tmp_path, 2, learner, tokenizer, sampler).is_dir()


def test_checkpoints_are_listed_by_step_and_the_oldest_go_first(tmp_path):
    for name in ("step-000002", "step-1000000", "step-999999", "step-x", ".step-000003.partial"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-000011").write_text("a file")
    names = ["step-000002", "step-999999", "step-1000000"]
    assert [p.name for p in list_checkpoints(tmp_path)] == names
    prune_checkpoints(tmp_path, keep=2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-999999", "step-1000000"]
    prune_checkpoints(tmp_path, keep=5)
    assert len(list_checkpoints(tmp_path)) == 2
    assert list_checkpoints(tmp_path / "nowhere") == []


def test_no_part_of_a_checkpoint_that_was_being_removed_passes_for_one(tmp_path, monkeypatch):
    for step in (1, 2):
        (tmp_path / f"step-00000{step}" / "model").mkdir(parents=True)

    def killed(path):
        (path / "model").rmdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("shutil.rmtree", killed)
        prune_checkpoints(tmp_path, keep=1)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-000002"]
    prune_checkpoints(tmp_path, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000002"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("state.json", text) for text in ("{", "[]", '{"step": 7}')),
        *((f"{part}.safetensors", "nonsense") for part in ("sampler", "optimizer")),
    ],
)
def test_a_broken_checkpoint_is_named(saved, file, content):
    (saved / file).write_text(content)
    with pytest.raises(RunError, match=r"cannot resume from the checkpoint .*step-000007"):
        load(saved)


FILES = ["model/model.safetensors", "optimizer.safetensors", "sampler.safetensors", "state.json"]


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in FILES for how in ("one bit", "removed")]
    + [("checksums.txt", "one bit")],
)
def test_a_damaged_checkpoint_names_itself_and_the_one_before(saved, name, how):
    path, before = saved, saved.with_name("step-000006")
    check_checkpoint(path, before)
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).unlink()
    if how == "one bit":
        (path / name).write_bytes(content)
    with pytest.raises(RunError) as caught:
        check_checkpoint(path, before)
    assert f"the checkpoint {path} is damaged: " in str(caught.value)
    assert name in str(caught.value) or name == "checksums.txt"
    assert f"the one before it is {before}" in str(caught.value)
    with pytest.raises(RunError, match="there is none before it"):
        check_checkpoint(path, None)
    if name.startswith("model/"):
        with pytest.raises(ModelError, match=r"step-000007 is damaged: model/model\.safetensors"):
            load_saved(ModelSource(path=str(path / "model")))


@pytest.mark.parametrize("changed", [{"tie_word_embeddings": True}, {"num_hidden_layers": 1}])
def test_a_checkpoint_of_other_data_or_of_another_model_is_refused(make_model, saved, changed):
    with pytest.raises(RunError, match="its prompts is 20, not 21"):
        load(saved, problems=21)
    with pytest.raises(RunError, match="to another model"):
        load_checkpoint(saved, make_learner(make_model(**changed)), make_sampler())
