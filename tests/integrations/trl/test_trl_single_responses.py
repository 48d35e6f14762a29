"""Single responses under TRL: one a prompt, compared with a belief, and bounded in their update."""

import numpy as np
import pytest
import torch

pytest.importorskip("trl")

from capped_by_hand import bounded_gradient
from closeness import assert_close
from transformers import TrainerCallback

import rollwise as rw
from rollwise.integrations.trl import AdaptiveSampling
from rollwise.sampling.baselines import shifted_prior
from rollwise.step import Example

pytestmark = pytest.mark.trl

ROWS = 12
RATIO = 2.0


def single(**changed):
    settings = {
        "prompt_sampler": rw.Worth,
        "exit_rule": rw.FixedCount(1),
        "schedule": rw.Rounds(1, rounds=1),
        "group_size": 1,
        "strategy": "all",
        "objective": "linear",
        "baseline": "belief",
    }
    return AdaptiveSampling(**settings | changed)


@pytest.fixture
def make_single(make_trainer):
    """Makes a trainer that draws one response to each of 12 of the 24 prompts."""

    def make(sampling=None, **changed):
        return make_trainer(sampling or single(), **{"per_device_train_batch_size": ROWS} | changed)

    return make


def logged(trainer, name):
    return [line[name] for line in trainer.state.log_history if name in line]


def test_each_response_is_compared_with_what_was_expected_of_its_prompt(make_single, watch):
    expected = []

    class Listening(rw.Worth):
        def ask(self, *arguments, **options):
            keys = super().ask(*arguments, **options)
            expected.append(dict(zip(keys, self.expected_pass_rates(keys), strict=True)))
            return keys

    trainer = make_single(single(prompt_sampler=Listening), max_steps=3)
    seen = watch(trainer)
    trainer.train()
    for asked, pools, rows, batch in zip(expected, seen.pools, seen.rows, seen.ours, strict=True):
        keys = [row.completion.draw.key for row in rows]
        assert keys == list(asked) and len(keys) == ROWS
        assert all(row.counts for row in rows)
        moved = {key: np.divide(*shifted_prior(pools[key])) for key in keys}
        odds = {key: rate / (1 - rate) * np.exp(pools[key].shift) for key, rate in asked.items()}
        assert moved == pytest.approx(odds, rel=1e-6)
        assert any(pool.shift for pool in pools.values())
        surprises = [pools[key].rewards[0] - odds[key] / (1 + odds[key]) for key in keys]
        assert batch["advantages"].tolist() == pytest.approx(surprises, rel=1e-5)
    assert len({rate for asked in expected[1:] for rate in asked.values()}) > 1
    assert logged(trainer, "rollwise/draws") == [ROWS] * 3
    assert trainer.state.epoch == 3 * ROWS / len(trainer.train_dataset)


def test_a_resumed_run_equals_one_that_never_stopped(make_single, watch, tmp_path):
    sampling = single(response_cap=RATIO)
    options = {
        "lr_scheduler_type": "constant",
        "save_strategy": "steps",
        "save_steps": 4,
        "max_steps": 8,
        "per_device_train_batch_size": ROWS // 2,
        "steps_per_generation": 2,
    }
    whole = make_single(sampling, folder=tmp_path / "whole", **options)
    whole.train()
    resumed = make_single(sampling, folder=tmp_path / "resumed", **options)
    seen = watch(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert len(seen.rows) == 2
    assert resumed.sampling_steps == whole.sampling_steps == 4
    assert sum(logged(whole, "rollwise/capped_responses")) > 0
    assert logged(resumed, "rollwise/reward") == logged(whole, "rollwise/reward")
    assert np.isfinite(whole.response_cap.bounds).all()
    assert resumed.response_cap.bounds == pytest.approx(whole.response_cap.bounds, rel=1e-12)
    for name, value in resumed.model.state_dict().items():
        assert torch.equal(value, whole.model.state_dict()[name]), name


class Gradients(TrainerCallback):
    """Keeps what the optimizer is given, update by update."""

    def __init__(self):
        self.found = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **others):
        self.found.append([p.grad.clone() for p in model.parameters()])


def lower_median(norms):
    """At each place, shape (layers + 1,); of an even number the lower middle one, as in torch."""
    return torch.from_numpy(norms).median(dim=0).values.numpy()


CAPPED = {
    "one pass": {},
    "accumulation": {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4},
    "recomputed activations": {"gradient_checkpointing": True},
    "reentrant": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
    },
    "mean over responses": {"loss_type": "grpo"},
}


@pytest.mark.parametrize("name", CAPPED)
def test_each_response_is_bounded_as_by_hand(make_single, watch, name):
    """A run without a bound shows the responses; by hand they are bounded one after another."""
    options = {"max_steps": 1, "max_grad_norm": 0.0} | CAPPED[name]
    free = make_single(**options)
    model = make_single(**options).model
    seen = watch(free)
    free.train()
    [rows] = seen.rows
    tokens = sum(len(row.completion.tokens) for row in rows)
    by_response = options.get("loss_type") == "grpo"
    examples = []
    for row in rows:
        prompt, response = free._prompts[row.completion.draw.key], row.completion.tokens
        share = tokens / (ROWS * len(response)) if by_response else 1.0
        examples.append(Example(prompt, response, row.completion.logprobs, share * row.advantage))
    places = model.config.num_hidden_layers + 1
    _, norms = bounded_gradient(model, examples, np.full(places, np.inf))
    bounds = RATIO * lower_median(norms)
    wanted, norms = bounded_gradient(model, examples, bounds)
    assert 0 < (norms > bounds).sum() < norms.size / 2

    capped, gradients = make_single(single(response_cap=RATIO), **options), Gradients()
    scale = tokens if by_response else 1.0  # TRL's loss is then no sum over tokens
    capped.response_cap.bounds = bounds / scale
    capped.add_callback(gradients)
    capped.train()
    assert_close(gradients.found[0], wanted, relative=1e-3)
    assert logged(capped, "rollwise/capped_responses") == [(norms > bounds).sum(axis=0).max()]
    moved = np.minimum(1.05 * bounds, RATIO * lower_median(norms))
    assert capped.response_cap.bounds * scale == pytest.approx(moved, rel=1e-3)


REFUSED = {
    "group_size must divide generation_batch_size, which is 12.*got 8": {"group_size": 8},
    "compares a response with others.*baseline='belief'": {
        "objective": "reference",
        "baseline": "pool",
    },
    "needs a schedule of at most 1 draws": {"schedule": rw.Rounds(2, rounds=1)},
    "response_cap .* not possible with torch_compile": {
        "response_cap": 5.0,
        "given": {"torch_compile": True},
    },
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_go_with_single_responses_is_refused(make_single, reason):
    changed = dict(REFUSED[reason])
    given = changed.pop("given", {})
    with pytest.raises(ValueError, match=reason):
        make_single(single(**changed), **given)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"response_cap": -1.0}, "response_cap must be finite and at least 0, got -1.0"),
    ],
)
def test_settings_of_single_responses_are_checked_where_they_are_made(changed, reason):
    with pytest.raises(ValueError, match=reason):
        single(**changed)
