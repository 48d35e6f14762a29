"""The learner against plain PyTorch: one forward pass a response, no padding, no batches."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import assert_close
from plain_learner import SAME, changed, learned, make_examples, make_learner, watch
from plain_pytorch import gradient_of, plain_distributions, plain_gradient, plain_logprobs
from tiny_models import PROMPTS, complete, make_draws

from rollwise.engines.transformers import TransformersEngine
from rollwise.errors import EngineError
from rollwise.step import Example


@pytest.mark.parametrize("temperature, micro_batch_tokens", [(1.0, 1), (1.0, 30), (0.7, 10**6)])
def test_the_gradient_is_the_plain_one(model, temperature, micro_batch_tokens):
    examples = make_examples(model, temperature=temperature)
    wanted = plain_gradient(model, examples, temperature)
    learner = make_learner(model, temperature, micro_batch_tokens=micro_batch_tokens)
    metrics, [found] = learned(learner, examples)
    assert_close(found, wanted)
    # Every ratio is 1, so the loss is −Σ A·T / ΣT = −(5 − 1 + .25 + 0 − 4 + 12) / 25.
    assert metrics["loss"] == pytest.approx(-12.25 / 25, rel=1e-4)
    norm = np.sqrt(sum(float((g**2).sum()) for g in wanted))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["clip_fraction"] == 0
    assert metrics["sampler_gap"] < SAME


@pytest.mark.parametrize(
    ("average", "bonus"), [("responses", 0.0), ("responses", 0.5), ("tokens", 0.5)]
)
def test_the_average_and_the_entropy_bonus_are_the_plain_ones(model, average, bonus):
    """−∇ Σ_i w_i·mean_t(A_i·log π(t) + `bonus`·H(t)) / Σ_i w_i; w_i is 1, or the tokens of i.

    Responses of advantage 0 are included.
    """
    examples = make_examples(model, temperature=0.8)
    plain = copy.deepcopy(model)
    weights = [e.response.drawn if average == "tokens" else 1 for e in examples]
    gains = [
        e.advantage * plain_logprobs(plain, e, 0.8).mean() + bonus * plain_entropy(plain, e, 0.8)
        for e in examples
    ]
    gain = sum(w * each for w, each in zip(weights, gains, strict=True)) / sum(weights)
    settings = {"micro_batch_tokens": 20, "entropy_coefficient": bonus}
    metrics, [found] = learned(make_learner(model, 0.8, average=average, **settings), examples)
    assert_close(found, gradient_of(-gain, plain))
    # Every ratio is 1: −Σ A·T / ΣT = −(5 − 1 + .25 + 0 − 4 + 12) / 25, or −Σ A / R = −1.75 / 6.
    wanted = -12.25 / 25 if average == "tokens" else -1.75 / 6
    assert metrics["loss"] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("mini_batches, old", [(1, "learner"), (2, "learner"), (2, "engine")])
def test_tokens_of_an_environment_are_read_but_not_learned_from(model, mini_batches, old):
    """−∇ Σ_i A_i Σ_{t of the model's} log π(t) / (number of the model's tokens), all in context."""
    own = np.array([True, True, False, False, True])
    examples = [
        changed(e, mask=own, logprobs=np.where(own, e.response.logprobs, 0).astype(np.float32))
        for e in make_examples(model, [(3, 5, 1.0), (6, 5, -0.5)])
    ]
    plain = copy.deepcopy(model)
    gains = [e.advantage * plain_logprobs(plain, e)[torch.from_numpy(own)].sum() for e in examples]
    taught = examples if mini_batches == 1 else examples[:1]
    wanted = gradient_of(-sum(gains[: len(taught)]) / (3 * len(taught)), plain)
    learner = make_learner(model, mini_batches=mini_batches, old_logprobs=old)
    metrics, gradients = learned(learner, examples)
    assert_close(gradients[0], wanted)
    if mini_batches == 1:
        assert metrics["loss"] == pytest.approx(-(3 - 1.5) / 6, rel=1e-4)
        assert metrics["sampler_gap"] < SAME


def test_updates_are_adamw_with_clipping_and_warm_up(model):
    rate, decay, bound = 3e-3, 0.1, 0.2
    learner = make_learner(
        model, learning_rate=rate, weight_decay=decay, max_grad_norm=bound, warmup_updates=2
    )
    steps = watch(learner)
    for seed in range(3):
        unclipped = plain_gradient(model, examples := make_examples(model, seed=seed))
        norm = np.sqrt(sum(float((g**2).sum()) for g in unclipped))
        assert norm > bound
        assert learner.learn(examples)["grad_norm"] == pytest.approx(norm, rel=1e-3)
        assert_close(steps[-1][1], [g * bound / norm for g in unclipped])
    assert learner.updates == 3
    assert [lr for _, _, lr in steps] == [rate / 2, rate, rate]

    [group] = learner.optimizer.param_groups
    assert (type(learner.optimizer), group["weight_decay"]) == (torch.optim.AdamW, decay)


def plain_entropy(model, example, temperature):
    """−Σ_v π(v) log π(v), averaged over the tokens of a response."""
    rows = plain_distributions(model, example, temperature)
    return -(rows.exp() * rows).sum(dim=1).mean()


@pytest.mark.parametrize("mini_batches", [1, 2])
@pytest.mark.parametrize(
    "sizes",
    [[], [(2, 3, 0.0)] * 4, [(2, 0, 1.0)] * 4, [(2, 3, np.inf), (2, 3, -np.inf)]],
    ids=["no response", "no advantage", "no token", "no finite gradient"],
)
def test_where_nothing_can_be_learnt_nothing_moves(model, sizes, mini_batches):
    """Neither Adam's memory, which would go on by itself, nor the warm-up."""
    learner = make_learner(model, mini_batches=mini_batches, warmup_updates=5, weight_decay=0.1)
    learner.learn(make_examples(model))
    optimizer = copy.deepcopy(learner.optimizer.state_dict()["state"])
    weights, updates = copy.deepcopy(learner.parameters), learner.updates
    metrics = learner.learn(make_examples(model, sizes))
    assert all(torch.equal(a, b) for a, b in zip(learner.parameters, weights, strict=True))
    torch.testing.assert_close(learner.optimizer.state_dict()["state"], optimizer, rtol=0, atol=0)
    assert learner.updates == updates
    skipped = mini_batches if np.inf in {advantage for _, _, advantage in sizes} else 0
    assert metrics["skipped_updates"] == skipped
    assert np.isfinite(metrics["grad_norm"])
    assert skipped or all(np.isfinite(value) for value in metrics.values())
    # What was not finite is forgotten: the next update is as good as any.
    examples = make_examples(model, seed=1)
    wanted = plain_gradient(model, examples)
    metrics, gradients = learned(learner, examples)
    assert metrics["skipped_updates"] == 0
    if mini_batches == 1:
        assert_close(gradients[0], wanted)


def test_a_response_that_diverged_moves_nothing_by_its_entropy_either(model):
    """Where all diverged there is no update, which Adam's memory would fill."""
    good, bad = make_examples(model, [(2, 3, 0.0), (2, 5, 0.0)])
    bad = changed(bad, logprobs=bad.response.logprobs - 5)
    plain = copy.deepcopy(model)
    (-0.1 * 3 / 8 * plain_entropy(plain, good, 1.0)).backward()
    learner = make_learner(model, max_divergence=1e-3, entropy_coefficient=0.1)
    steps = watch(learner)
    assert learner.learn([good, bad])["diverged_responses"] == 1
    assert_close(steps[0][1], [p.grad for p in plain.parameters()])
    assert learner.learn([bad])["diverged_responses"] == learner.updates == len(steps) == 1


@pytest.mark.parametrize("mini_batches", [1, 3])
@pytest.mark.parametrize("old", ["learner", "engine"])
def test_the_gap_to_the_engine_is_that_before_the_updates(model, mini_batches, old):
    examples = [
        changed(e, logprobs=e.response.logprobs - 2)
        for e in make_examples(model, [(2, 3, 1.0)] * 6)
    ]
    learner = make_learner(model, mini_batches=mini_batches, old_logprobs=old)
    assert learner.learn(examples)["sampler_gap"] == pytest.approx(2, rel=1e-4)


@pytest.mark.parametrize(("cap", "weight"), [(0.0, 1.0), (10.0, 3.0), (2.0, 2.0)])
def test_tokens_are_weighted_by_how_much_likelier_the_learner_finds_them(model, cap, weight):
    """Three times as likely, each; and so grows the gradient."""
    examples = make_examples(model)
    wanted = [weight * g for g in plain_gradient(model, examples)]
    given = [changed(e, logprobs=e.response.logprobs - np.log(3)) for e in examples]
    metrics, [found] = learned(make_learner(model, importance_cap=cap), given)
    assert_close(found, wanted)
    assert metrics["importance_weight"] == pytest.approx(weight, rel=1e-4)
    assert metrics["importance_truncated"] == (cap == 2.0)
    assert metrics["sampler_gap"] == pytest.approx(np.log(3), rel=1e-3)
    agreed = make_learner(model, importance_cap=1.0).learn(make_examples(model, [(2, 3, 1.0)]))
    assert agreed["importance_truncated"] == 0


@pytest.mark.parametrize("unknown", [lambda r: (), lambda r: r.logprobs * np.nan])
def test_an_engine_that_knows_no_probabilities_is_trained_with_as_one_that_agrees(model, unknown):
    examples = make_examples(model)
    wanted = plain_gradient(model, examples)
    given = [changed(e, logprobs=unknown(e.response)) for e in examples]
    metrics, [found] = learned(make_learner(model), given)
    assert metrics["importance_weight"] == 1
    assert_close(found, wanted)
    with pytest.raises(EngineError, match="the engine reported none; set it to 'learner'"):
        make_learner(model, mini_batches=2, old_logprobs="engine").learn(given)


def test_engine_and_learner_agree_on_the_probability_of_every_token(model, tokenizer):
    """For each token; in one batch for the engine, padded and unpadded for the learner."""
    engine = TransformersEngine(model, tokenizer, max_new_tokens=20, temperature=0.8)
    drawn = complete(engine, make_draws(8)).items()
    examples = [Example(PROMPTS[draw.key], response, 1.0) for draw, response in drawn]
    with torch.no_grad():
        for example in examples:
            wanted = plain_logprobs(model, example, 0.8)
            np.testing.assert_allclose(example.response.logprobs, wanted, rtol=0, atol=SAME)
    assert make_learner(model, 0.8).learn(examples)["sampler_gap"] < SAME


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_how_far_a_step_moves_the_policy_is_measured(model, mini_batches):
    """In proportion to the learning rate, where it is small; only on what is learned from."""
    examples = make_examples(model)
    taught = [example for example in examples if example.advantage]

    def logprobs(of):
        return torch.cat([plain_logprobs(of, example).detach() for example in taught])

    moved = {}
    for rate in (1e-5, 1e-4):
        twin = copy.deepcopy(model)
        options = {"mini_batches": mini_batches, "learning_rate": rate, "warmup_updates": 0}
        moved[rate] = make_learner(twin, **options).learn(examples)["policy_change"]
        assert moved[rate] == pytest.approx(
            float((logprobs(twin) - logprobs(model)).abs().mean()), rel=1e-3
        )
    assert moved[1e-4] == pytest.approx(10 * moved[1e-5], rel=0.1)
    unmoved = make_learner(model).learn([replace(examples[0], advantage=0.0)])
    assert "policy_change" not in unmoved


@pytest.mark.parametrize("old", ["learner", "engine"])
def test_further_passes_are_clipped_against_the_policy_that_drew(model, old):
    """Two passes with one mini-batch make the updates of two with the old probabilities kept."""
    examples = make_examples(model)
    drawn = [plain_logprobs(copy.deepcopy(model), e).detach() for e in examples]
    settings = {"learning_rate": 3e-3, "old_logprobs": old, "target_kl": 1e9}
    learner = make_learner(model, passes=3, **settings)
    steps = watch(learner)
    metrics = learner.learn(examples)
    assert (metrics["passes"], len(steps)) == (3, 3)
    before_last, taught = copy.deepcopy(model), [e for e in examples if e.advantage]
    with torch.no_grad():
        for weights, then in zip(before_last.parameters(), steps[-1][0], strict=True):
            weights.copy_(then)
    log_ratios = torch.cat(
        [
            plain_logprobs(before_last, e).detach() - before
            for e, before in zip(examples, drawn, strict=True)
            if e in taught
        ]
    )
    wanted = float((log_ratios.exp() - 1 - log_ratios).mean())
    assert metrics["kl"] == pytest.approx(wanted, rel=1e-3)


def test_further_passes_end_once_the_policy_has_moved(model):
    """The first pass is made whole; a later one ends between two mini-batches."""
    examples, settings = make_examples(model), {"passes": 50, "mini_batches": 2}
    metrics, gradients = learned(make_learner(model, learning_rate=3e-4, **settings), examples)
    assert 1 < metrics["passes"] < 50 and len(gradients) == 2 * metrics["passes"]
    assert metrics["kl"] > 0.03
    metrics, _ = learned(make_learner(model, target_kl=1e-12, **settings), examples)
    assert metrics["passes"] in (1, 1.5)
