"""A bound on what one response adds to the gradient, against the same by hand."""

import copy

import numpy as np
import pytest
from capped_by_hand import bounded_gradient
from closeness import assert_close
from plain_learner import make_examples, watch
from plain_learner import make_learner as learner_of

from rollwise.errors import ModelError
from rollwise.step.groups import Example


def make_learner(model, **settings):
    return learner_of(copy.deepcopy(model), **settings)


def gradient_of(learner, examples):
    """What the optimizer is given for one update."""
    steps = watch(learner)
    metrics = learner.learn(examples)
    return steps[0][1], metrics


SIZES = [(3, 5, 1.0), (1, 2, -0.5), (6, 1, 0.25), (4, 4, -1.0), (6, 6, 40.0), (2, 3, 0.5)]
"""Prompt and response tokens, and the advantage: the one of 40 is extreme."""


@pytest.mark.parametrize(("threads", "packed"), [(1, True), (2, True), (1, False)])
def test_each_response_is_bounded_at_each_layer(make_model, threads, packed):
    examples = make_examples(model := make_model(), SIZES)
    _, free = bounded_gradient(model, examples, np.full(model.config.num_hidden_layers + 1, np.inf))
    bounds = 2.0 * np.median(free, axis=0)
    wanted, seen = bounded_gradient(model, examples, bounds)
    assert 0 < (seen > bounds).sum() < seen.size / 2
    settings = {"importance_cap": 0.0, "micro_batch_tokens": 24, "packed": packed}
    learner = make_learner(model, threads=threads, response_cap=2.0, **settings)
    learner._cap.bounds = bounds
    found, metrics = gradient_of(learner, examples)
    assert_close(found, wanted, relative=1e-3)
    assert metrics["capped_gradients"] == (seen > bounds).sum(axis=0).max()


def test_bounds_fall_at_once_and_rise_slowly(make_model):
    """They are twice the median norm; five of six responses alike have that of each."""
    model = make_model()
    usual = make_examples(model, [(3, 5, 1.0)])
    learner = make_learner(model, response_cap=2.0, learning_rate=1e-30)

    def bounds_after(advantage):
        example = usual[0]
        learner.learn([Example(example.prompt, example.response, example.logprobs, advantage)] * 3)
        return learner._cap.bounds.copy()

    first = bounds_after(1.0)
    assert bounds_after(10.0) == pytest.approx(1.05 * first, rel=1e-3)
    assert bounds_after(0.1) == pytest.approx(0.1 * first, rel=1e-3)


def test_the_first_update_is_bounded_too(make_model):
    """Nothing is known of it: each micro-batch takes its own median, recomputed or not."""
    examples = make_examples(model := make_model(), SIZES)
    free, _ = gradient_of(make_learner(model), examples)
    found, metrics = gradient_of(make_learner(model, response_cap=2.0), examples)
    assert metrics["capped_gradients"] > 0
    assert sum(float(g.norm()) for g in found) < 0.5 * sum(float(g.norm()) for g in free)
    model.gradient_checkpointing_enable()
    recomputed, _ = gradient_of(make_learner(model, response_cap=2.0), examples)
    assert_close(recomputed, found)


def test_a_model_whose_layers_are_not_known_is_refused(make_model):
    model = make_model()
    model._no_split_modules = []
    with pytest.raises(ModelError, match="those of Qwen2ForCausalLM are not known"):
        make_learner(model, response_cap=2.0)


def test_the_bounds_are_resumed_with_the_optimizer(make_model, tmp_path):
    model = make_model()
    learner = make_learner(model, response_cap=2.0)
    learner.learn(make_examples(model, SIZES))
    learner.save(tmp_path)
    other = make_learner(make_model(), response_cap=2.0)
    other.load(tmp_path)
    assert np.isfinite(other._cap.bounds).all()
    assert other._cap.bounds.tolist() == learner._cap.bounds.tolist()
    make_learner(make_model()).load(tmp_path)
