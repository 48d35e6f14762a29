"""The learner's micro-batches, mini-batches, threads and recomputed activations."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from closeness import assert_close
from plain_learner import (
    SAME,
    SIZES,
    changed,
    learned,
    make_examples,
    make_learner,
    watch,
    watch_batches,
)
from plain_pytorch import gradient_of, plain_gradient, plain_logprobs


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_the_number_of_threads_does_not_change_the_gradients(model, mini_batches):
    examples = make_examples(model, SIZES * 6)
    gradients, metrics = [], []
    for threads in (1, 3):
        options = {"micro_batch_tokens": 30, "mini_batches": mini_batches}
        learner = make_learner(copy.deepcopy(model), threads=threads, **options)
        reported, found = learned(learner, examples)
        metrics.append(reported)
        gradients.append(found)
    assert len(gradients[0]) == mini_batches
    assert_close(gradients[1], gradients[0])
    gap, other_gap = (m.pop("sampler_gap") for m in metrics)
    assert max(gap, other_gap) < SAME
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-4)


def test_a_learner_holds_few_gradients_at_a_time(model):
    learner, held = make_learner(model, threads=2, micro_batch_tokens=12), [0]

    class Counted(ThreadPoolExecutor):
        def submit(self, *work):
            held.append(held[-1] + 1)
            future = super().submit(*work)
            return SimpleNamespace(result=lambda: (held.append(held[-1] - 1), future.result())[1])

    learner._threads = Counted(2)
    learner.learn(make_examples(model, SIZES * 6))
    assert len(held) > 12
    assert (max(held), held[-1]) == (3, 0)


def test_micro_batches_keep_within_the_budget_and_leave_out_what_teaches_nothing(model):
    """Sorted by length: rows of 12, 8, 8, 7 and 3 tokens; the one of advantage 0 is not run.

    With a budget of 20, two rows of 12 do not fit, nor do three of 8. In packed rows 12 + 8 and
    8 + 7 + 3 fit.
    """
    examples = make_examples(model)
    for packed, wanted in ((False, [(1, 12), (2, 8), (2, 7)]), (True, [(1, 20), (1, 18)])):
        learner = make_learner(model, micro_batch_tokens=20, threads=1, packed=packed)
        shapes = watch_batches(learner)
        learner.learn(examples)
        assert shapes == wanted


def clipped_loss(model, old, examples):
    """PPO's loss with bounds [0.8, 1.28] for A ≥ 0 and [0.8, 10] for A < 0 (see test_loss)."""
    total = 0.0
    for example in examples:
        ratio = (plain_logprobs(model, example) - plain_logprobs(old, example).detach()).exp()
        bounds = (0.0, 1.28) if example.advantage >= 0 else (0.8, 10.0)
        total = total - example.advantage * ratio.clamp(*bounds).sum()
    return total / sum(e.response.drawn for e in examples)


def test_later_mini_batches_compare_with_the_weights_that_drew_the_responses(model):
    examples = make_examples(model, SIZES * 2)
    before = copy.deepcopy(model)
    learner = make_learner(model, mini_batches=2, learning_rate=2e-2, micro_batch_tokens=30)
    steps = watch(learner)
    metrics = learner.learn(examples)
    assert learner.updates == len(steps) == 2
    assert_close(steps[0][1], plain_gradient(before, examples[:6]))

    between = copy.deepcopy(before)
    for parameter, value in zip(between.parameters(), steps[1][0], strict=True):
        parameter.data.copy_(value)
    assert_close(steps[1][1], gradient_of(clipped_loss(between, before, examples[6:]), between))
    # The clip took part: without it, and with the ratio taken anew, the gradient is another.
    assert 0 < metrics["clip_fraction"] < 0.5
    pairs = zip(steps[1][1], plain_gradient(between, examples[6:]), strict=True)
    assert max(float((a - b).abs().max()) for a, b in pairs) > 1e-3


def test_the_engines_logprobs_can_stand_for_the_old_ones(model):
    """They are compared with as they are, also where the learner computes others."""
    examples = make_examples(model, SIZES * 2)
    other = [changed(e, logprobs=e.response.logprobs + 0.1) for e in examples]
    gradients = {}
    for name, given in (("equal", examples), ("other", other)):
        twin = copy.deepcopy(model)
        learner = make_learner(
            twin, mini_batches=2, old_logprobs="engine", importance_cap=0, threads=1, packed=False
        )
        shapes = watch_batches(learner)
        _, [gradients[name], _] = learned(learner, given)
        assert sum(rows for rows, _ in shapes) == sum(e.advantage != 0 for e in given)
    assert_close(gradients["equal"], plain_gradient(model, examples[:6]))
    ratio = math.exp(-0.1)  # of the learner's probability to the engine's; within the bounds
    assert_close(gradients["other"], [ratio * g for g in plain_gradient(model, examples[:6])])


def test_mini_batches_share_the_responses_evenly(model):
    examples = make_examples(model, [(2, 3, 1)] * 10)
    learner = make_learner(model, mini_batches=4)
    shapes = watch_batches(learner)
    learner.learn(examples)
    # First all, for the old log-probabilities, then ten in four parts; 5 tokens each.
    assert shapes == [(1, 50), (1, 15), (1, 15), (1, 10), (1, 10)]


@pytest.mark.parametrize("threads", [1, 2])
def test_gradient_checkpointing_recomputes_and_changes_nothing_else(threads, make_model):
    """Dropout stays off."""
    model = make_model(attention_dropout=0.5)
    examples = make_examples(model)
    wanted = plain_gradient(model, examples)
    model.gradient_checkpointing_enable()
    runs = []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    learner = make_learner(model, micro_batch_tokens=10**6, threads=threads)
    runs.clear()
    _, [found] = learned(learner, examples)
    assert_close(found, wanted)
    assert len(runs) == 4  # forward, and again on the way back; before and after the update
    assert not any(module.training for module in model.modules())
