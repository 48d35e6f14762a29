"""Optimizers whose state is small or on the host: their updates, their state in checkpoints."""

import importlib.util
import sys

import pytest
import torch

from rollwise.config import LearnerSettings
from rollwise.errors import ConfigError
from rollwise.training.optimizers import load_optimizer_state, make_optimizer, optimizer_state

SMALL = ["adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"]
needs_library = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="needs bitsandbytes"
)


def parameters(seed=0):
    """A matrix whose state is quantized, and a vector that is too small for it."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((96, 64), (64,))
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def make(name, own, **settings):
    return make_optimizer(own, LearnerSettings(optimizer=name, learning_rate=1e-2, **settings))


def update(optimizer, own, count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for parameter in own:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        optimizer.zero_grad()


@needs_library
@pytest.mark.parametrize("name", SMALL)
def test_updates_are_those_of_adamw_but_for_the_rounding_of_its_state(name):
    changes = {}
    for kind in ("adamw", name):
        own = parameters()
        before = [p.detach().clone() for p in own]
        update(make(kind, own, weight_decay=0.1), own, 8)
        changes[kind] = [p.detach() - b for p, b in zip(own, before, strict=True)]
    allowed = (0.05 if "8bit" in name else 1e-4, 1e-4)  # by tensor: 8 bits round by some percent
    for found, wanted, relative in zip(changes[name], changes["adamw"], allowed, strict=True):
        assert float((found - wanted).norm()) < relative * float(wanted.norm())


@needs_library
@pytest.mark.parametrize("name", SMALL)
def test_the_state_is_as_large_as_it_should_be(name):
    """Two moments a weight: in 8 bits with a scale for every 256 values, or in 32."""
    own = parameters()
    update(optimizer := make(name, own), own, 1)
    saved = optimizer_state(optimizer, own)
    size = sum(t.nbytes for key, t in saved.items() if key.startswith("0.") and t.ndim)
    bytes_of_a_weight = 2 + 2 * 4 / 256 if "8bit" in name else 8
    assert size == bytes_of_a_weight * own[0].numel()


@needs_library
@pytest.mark.parametrize("name", SMALL)
def test_a_state_that_is_restored_goes_on_as_if_never_saved(name):
    own = parameters()
    update(optimizer := make(name, own), own, 3)
    saved = {key: value.clone() for key, value in optimizer_state(optimizer, own).items()}
    resumed = [torch.nn.Parameter(p.detach().clone()) for p in own]
    again = make(name, resumed)
    load_optimizer_state(again, resumed, saved)
    update(optimizer, own, 3, seed=2)
    update(again, resumed, 3, seed=2)
    for ours, theirs in zip(resumed, own, strict=True):
        assert torch.equal(ours, theirs)
    fresh = [torch.nn.Parameter(p.detach().clone()) for p in resumed]
    update(make(name, fresh), fresh, 1)
    update(again, resumed, 1)
    assert not torch.equal(fresh[0], resumed[0])  # the state matters


@needs_library
@pytest.mark.parametrize(
    ("saved_by", "loaded_by"),
    [
        ("adamw", "adamw_8bit"),
        ("adamw_8bit", "adamw"),
        ("adamw_8bit", "paged_adamw_32bit"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(saved_by, loaded_by):
    own = parameters()
    update(optimizer := make(saved_by, own), own, 1)
    saved = optimizer_state(optimizer, own)
    with pytest.raises(ValueError, match=r"of another optimizer: see `learner.optimizer`"):
        load_optimizer_state(make(loaded_by, own), own, saved)


@needs_library
def test_the_state_of_another_model_is_refused():
    own, other = parameters(), [torch.nn.Parameter(torch.zeros(64, 96)), parameters()[1]]
    update(optimizer := make("adamw_8bit", own), own, 1)
    with pytest.raises(ValueError, match="of another model"):
        load_optimizer_state(make("adamw_8bit", other), other, optimizer_state(optimizer, own))


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r"'adamw_8bit' needs bitsandbytes: pip install"):
        make("adamw_8bit", parameters())


@needs_library
def test_a_run_with_a_state_in_8_bits_resumes_as_if_it_had_never_stopped(tmp_path, train, state_of):
    changed = {"learner__optimizer": "adamw_8bit", "evaluation__every": "2"}
    assert train(tmp_path / "whole", **changed) == 0
    assert train(tmp_path / "run", **changed | {"steps": "2"}) == 0
    assert train(tmp_path / "run", "--resume", **changed) == 0
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")
