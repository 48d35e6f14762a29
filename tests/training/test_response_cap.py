"""A bound on what one response adds to the gradient, against the same by hand."""

import copy

import numpy as np
import pytest
from capped_by_hand import bounded_gradient
from closeness import assert_close

from rollwise.config import LearnerSettings
from rollwise.errors import ModelError
from rollwise.step.groups import Example
from rollwise.training.learner import Learner


def make_examples(sizes, seed=0):
    rng = np.random.default_rng(seed)
    examples = []
    for prompt, response, advantage in sizes:
        tokens = rng.integers(2, 17, prompt + response).tolist()
        logprobs = np.full(response, -2.0, np.float32)
        examples.append(Example(tokens[:prompt], tokens[prompt:], logprobs, advantage))
    return examples


def make_learner(model, threads=None, **settings):
    given = {"learning_rate": 1e-2, "warmup_updates": 0, "max_grad_norm": 1e9} | settings
    return Learner(copy.deepcopy(model), LearnerSettings(**given), threads=threads)


def gradient_of(learner, examples):
    """What the optimizer is given for one update."""
    found = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: found.extend(p.grad.clone() for p in learner.parameters)
    )
    metrics = learner.learn(examples)
    return found, metrics


SIZES = [(3, 5, 1.0), (1, 2, -0.5), (6, 1, 0.25), (4, 4, -1.0), (6, 6, 40.0), (2, 3, 0.5)]
"""Prompt and response tokens, and the advantage: the one of 40 is extreme."""


@pytest.mark.parametrize("threads", [1, 2])
def test_each_response_is_bounded_at_each_layer(make_model, threads):
    model, examples = make_model(), make_examples(SIZES)
    _, free = bounded_gradient(model, examples, np.full(model.config.num_hidden_layers + 1, np.inf))
    bounds = 2.0 * np.median(free, axis=0)
    wanted, seen = bounded_gradient(model, examples, bounds)
    assert 0 < (seen > bounds).sum() < seen.size / 2
    settings = {"importance_cap": 0.0, "micro_batch_tokens": 24}
    learner = make_learner(model, threads, response_cap=2.0, **settings)
    learner._cap.bounds = bounds
    found, metrics = gradient_of(learner, examples)
    assert_close(found, wanted, relative=1e-3)
    assert metrics["capped_gradients"] == (seen > bounds).sum(axis=0).max()


def test_bounds_fall_at_once_and_rise_slowly(make_model):
    """They are twice the median norm; five of six responses alike have that of each."""
    model = make_model()
    usual = make_examples([(3, 5, 1.0)])
    learner = make_learner(model, response_cap=2.0, learning_rate=1e-30)

    def bounds_after(advantage):
        example = usual[0]
        learner.learn([Example(example.prompt, example.response, example.logprobs, advantage)] * 3)
        return learner._cap.bounds.copy()

    first = bounds_after(1.0)
    assert bounds_after(10.0) == pytest.approx(1.05 * first, rel=1e-3)
    assert bounds_after(0.1) == pytest.approx(0.1 * first, rel=1e-3)


def test_the_first_update_is_bounded_too(make_model):
    """Nothing is known of it: each micro-batch takes its own median."""
    model, examples = make_model(), make_examples(SIZES)
    free, _ = gradient_of(make_learner(model), examples)
    found, metrics = gradient_of(make_learner(model, response_cap=2.0), examples)
    assert metrics["capped_gradients"] > 0
    assert sum(float(g.norm()) for g in found) < 0.5 * sum(float(g.norm()) for g in free)


def test_nothing_is_bounded_where_nothing_was_measured(make_model):
    learner = make_learner(make_model(), response_cap=2.0)
    learner.learn(make_examples([(3, 5, 0.0)]))
    assert np.isinf(learner._cap.bounds).all()
    assert learner._cap.capped == 0


def test_bounds_that_none_exceeds_change_nothing(make_model):
    model, examples = make_model(), make_examples(SIZES)
    wanted, _ = gradient_of(make_learner(model), examples)
    found, metrics = gradient_of(make_learner(model, response_cap=1e6), examples)
    assert_close(found, wanted)
    assert metrics["capped_gradients"] == 0


def test_recomputed_activations_are_bounded_alike(make_model):
    model, examples = make_model(), make_examples(SIZES)
    plain, _ = gradient_of(make_learner(model, response_cap=2.0), examples)
    model.gradient_checkpointing_enable()
    found, metrics = gradient_of(make_learner(model, response_cap=2.0), examples)
    assert_close(found, plain)
    assert metrics["capped_gradients"] > 0


def test_a_model_whose_layers_are_not_known_is_refused(make_model):
    model = make_model()
    model._no_split_modules = []
    with pytest.raises(ModelError, match="those of Qwen2ForCausalLM are not known"):
        make_learner(model, response_cap=2.0)


def test_the_bounds_are_resumed_with_the_optimizer(make_model, tmp_path):
    learner = make_learner(make_model(), response_cap=2.0)
    learner.learn(make_examples(SIZES))
    learner.save(tmp_path)
    other = make_learner(make_model(), response_cap=2.0)
    other.load(tmp_path)
    assert np.isfinite(other._cap.bounds).all()
    assert other._cap.bounds.tolist() == learner._cap.bounds.tolist()
    make_learner(make_model()).load(tmp_path)
