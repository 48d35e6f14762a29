"""The learner against plain PyTorch: one forward pass a response, no padding, no batches."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import assert_close

from rollwise.config import LearnerSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.sampling import Draw
from rollwise.sampling.session import draw_seed
from rollwise.step.groups import Example
from rollwise.training.learner import Learner

SAME = 1e-4
"""Log-probabilities this close are the same: their difference is the relative one of π."""

SIZES = [(3, 5, 1.0), (1, 2, -0.5), (6, 1, 0.25), (2, 7, 0.0), (4, 4, -1.0), (6, 6, 2.0)]
"""Prompt and response tokens, and the advantage."""


@pytest.fixture
def model(make_model):
    return make_model()


def plain_distributions(model, example, temperature=1.0):
    """log π of every token at each place of the response, shape (T, V)."""
    ids = torch.tensor([[*example.prompt, *example.response]])
    logits = model(ids).logits[0, len(example.prompt) - 1 : -1] / temperature
    return logits.log_softmax(dim=1)


def plain_logprobs(model, example, temperature=1.0):
    """log π of the response's tokens, shape (T,)."""
    chosen = torch.tensor(example.response)[:, None]
    return plain_distributions(model, example, temperature).gather(1, chosen).squeeze(1)


@torch.no_grad()
def make_examples(model, sizes=SIZES, temperature=1.0, seed=0):
    """Responses of random tokens, with the log-probabilities that an engine would report."""
    rng = np.random.default_rng(seed)
    examples = []
    for prompt, response, advantage in sizes:
        tokens = rng.integers(2, 17, prompt + response).tolist()
        example = Example(tokens[:prompt], tokens[prompt:], np.zeros(response), advantage)
        logprobs = plain_logprobs(model, example, temperature).numpy()
        examples.append(Example(example.prompt, example.response, logprobs, advantage))
    return examples


def make_learner(model, temperature=1.0, threads=None, **settings):
    defaults = {"learning_rate": 1e-2, "warmup_updates": 0, "max_grad_norm": 1e9}
    return Learner(model, LearnerSettings(**defaults | settings), temperature, threads=threads)


def watch(learner):
    """Collects (weights before, gradient, learning rate) of each optimizer step."""
    steps = []

    def collect(optimizer, *_):
        steps.append(
            (
                [p.detach().clone() for p in learner.parameters],
                [p.grad.clone() for p in learner.parameters],
                optimizer.param_groups[0]["lr"],
            )
        )

    learner.optimizer.register_step_pre_hook(collect)
    return steps


def gradient_of(loss, model):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def plain_gradient(model, examples, temperature=1.0):
    """−∇ Σ_i A_i Σ_t log π(t) / Σ_i T_i: REINFORCE, averaged over all tokens."""
    model = copy.deepcopy(model)
    gains = [e.advantage * plain_logprobs(model, e, temperature).sum() for e in examples]
    return gradient_of(-sum(gains) / sum(len(e.response) for e in examples), model)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_is_the_plain_one(model, temperature):
    examples = make_examples(model, temperature=temperature)
    wanted = plain_gradient(model, examples, temperature)
    learner = make_learner(model, temperature)
    steps = watch(learner)
    metrics = learner.learn(examples)
    ((_, found, _),) = steps
    assert_close(found, wanted)
    # Every ratio is 1, so the loss is −Σ A·T / ΣT = −(5 − 1 + .25 + 0 − 4 + 12) / 25.
    assert metrics["loss"] == pytest.approx(-12.25 / 25, rel=1e-4)
    norm = np.sqrt(sum(float((g**2).sum()) for g in wanted))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["clip_fraction"] == 0
    assert metrics["sampler_gap"] < SAME


def test_averaging_by_response_lets_all_responses_count_alike(model):
    """−∇ Σ_i A_i (Σ_t log π(t) / T_i) / R over the R responses, those of advantage 0 included."""
    examples = make_examples(model)
    plain = copy.deepcopy(model)
    gains = [e.advantage * plain_logprobs(plain, e).mean() for e in examples]
    wanted = gradient_of(-sum(gains) / len(examples), plain)
    learner = make_learner(model, average="responses", micro_batch_tokens=20)
    steps = watch(learner)
    metrics = learner.learn(examples)
    assert_close(steps[0][1], wanted)
    # Every ratio is 1, so the loss is −Σ A / R = −(1 − .5 + .25 + 0 − 1 + 2) / 6.
    assert metrics["loss"] == pytest.approx(-1.75 / 6, rel=1e-4)


def test_the_entropy_bonus_is_averaged_by_response_as_well(model):
    examples = [replace(e, advantage=0.0) for e in make_examples(model)]
    plain = copy.deepcopy(model)
    wanted = 0.5 * sum(plain_entropy(plain, [e]) for e in examples) / len(examples)
    learner = make_learner(model, average="responses", entropy_coefficient=0.5)
    steps = watch(learner)
    learner.learn(examples)
    assert_close(steps[0][1], gradient_of(-wanted, plain))


def test_flash_reinforce_number_by_number(model):
    """−(1/B) Σ_i m_i (1/T_i) Σ_t (π/π_engine) A_i ∇log π, the weights detached and not clipped.

    m_i is 0 where the mean over the tokens of p·log(p/q) + (1 − p)·log((1 − p)/(1 − q)) exceeds
    the limit. The engine is off by 0.01 nats on most responses, and by 1.5 on two of them.
    """
    offsets = [0.01, -0.01, 1.5, 0.01, -1.5, 0.01]
    examples = [
        replace(e, logprobs=e.logprobs + offset)
        for e, offset in zip(make_examples(model), offsets, strict=True)
    ]
    plain, total, kept = copy.deepcopy(model), 0.0, []
    for example in examples:
        logprobs = plain_logprobs(plain, example)
        engine = torch.as_tensor(example.logprobs)
        p, q = engine.exp(), logprobs.detach().exp()
        divergence = (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()
        kept.append(bool(divergence <= 5e-3))
        weights = (logprobs.detach() - engine).exp()
        total = total - kept[-1] * example.advantage * (weights * logprobs).mean()
    assert kept == [True, True, False, True, False, True]
    wanted = gradient_of(total / len(examples), plain)
    learner = make_learner(
        model,
        average="responses",
        importance_cap=1e9,
        clip_low=1 - 1e-9,
        clip_high=1e9,
        dual_clip=1e9,
        max_divergence=5e-3,
    )
    steps = watch(learner)
    metrics = learner.learn(examples)
    assert_close(steps[0][1], wanted)
    assert metrics["diverged_responses"] == 2


@pytest.mark.parametrize("mini_batches, old", [(1, "learner"), (2, "learner"), (2, "engine")])
def test_tokens_of_an_environment_are_read_but_not_learned_from(model, mini_batches, old):
    """−∇ Σ_i A_i Σ_{t of the model's} log π(t) / (number of the model's tokens), all in context."""
    own = np.array([True, True, False, False, True])
    examples = [
        replace(e, loss_mask=own, logprobs=np.where(own, e.logprobs, 0).astype(np.float32))
        for e in make_examples(model, [(3, 5, 1.0), (6, 5, -0.5)])
    ]
    plain = copy.deepcopy(model)
    gains = [e.advantage * plain_logprobs(plain, e)[torch.from_numpy(own)].sum() for e in examples]
    taught = examples if mini_batches == 1 else examples[:1]
    wanted = gradient_of(-sum(gains[: len(taught)]) / (3 * len(taught)), plain)
    learner = make_learner(model, mini_batches=mini_batches, old_logprobs=old)
    steps = watch(learner)
    metrics = learner.learn(examples)
    assert_close(steps[0][1], wanted)
    if mini_batches == 1:
        assert metrics["loss"] == pytest.approx(-(3 - 1.5) / 6, rel=1e-4)
        assert metrics["sampler_gap"] < SAME


def test_updates_are_adamw_with_clipping_and_warm_up(model):
    """AdamW by hand (arXiv 1711.05101), in float64, given the gradients that the updates had."""
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

    first = [torch.zeros_like(p, dtype=torch.float64) for p in learner.parameters]
    second = [torch.zeros_like(p, dtype=torch.float64) for p in learner.parameters]
    afterwards = [weights for weights, _, _ in steps[1:]] + [learner.parameters]
    for t, ((weights, gradient, lr), after) in enumerate(zip(steps, afterwards, strict=True), 1):
        changes, wanted = [], []
        for m, v, w, g, a in zip(first, second, weights, gradient, after, strict=True):
            w, g = w.double(), g.double()
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g**2)
            step = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
            wanted.append(-lr * decay * w - lr * step)
            changes.append(a.detach().double() - w)
        assert_close(changes, wanted, relative=1e-3)


def test_micro_batches_do_not_change_the_gradient(model):
    examples = make_examples(model, SIZES * 3)
    found = {}
    for budget in (1, 30, 10**6):
        learner = make_learner(copy.deepcopy(model), micro_batch_tokens=budget)
        steps = watch(learner)
        learner.learn(examples)
        found[budget] = steps[0][1]
    assert_close(found[1], found[10**6])
    assert_close(found[30], found[10**6])


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_the_number_of_threads_does_not_change_the_gradients(model, mini_batches):
    examples = make_examples(model, SIZES * 6)
    gradients, metrics = [], []
    for threads in (1, 3):
        options = {"micro_batch_tokens": 30, "mini_batches": mini_batches}
        learner = make_learner(copy.deepcopy(model), threads=threads, **options)
        steps = watch(learner)
        metrics.append(learner.learn(examples))
        gradients.append([gradient for _, gradient, _ in steps])
    assert len(gradients[0]) == mini_batches
    assert_close(gradients[1], gradients[0])
    gap, other_gap = (m.pop("sampler_gap") for m in metrics)
    assert max(gap, other_gap) < SAME
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-4)


def watch_batches(model):
    """Collects the shape of each batch that the model is run on; in order with one thread.

    Call it before the learner is made, which runs a twin of the model.
    """
    shapes = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


def test_micro_batches_keep_within_the_budget_and_leave_out_what_teaches_nothing(model):
    """Sorted by length: rows of 12, 8, 8, 7 and 3 tokens; the one of advantage 0 is not run.

    Prompts and responses are padded apart: 12 = 6 + 6 alone fills the budget of 20 but for 8;
    8 = 3 + 5 and 8 = 4 + 4 need 2 × (4 + 5) = 18, a third row (of 7 = 6 + 1) would need 3 × 11;
    7 = 6 + 1 and 3 = 1 + 2 need 2 × (6 + 2) = 16. In packed rows 12 + 8 and 8 + 7 + 3 fit.
    """
    examples = make_examples(model)
    shapes = watch_batches(model)
    make_learner(model, micro_batch_tokens=20, threads=1, packed=False).learn(examples)
    assert shapes == [(1, 12), (2, 9), (2, 8)]
    shapes.clear()
    make_learner(model, micro_batch_tokens=20, threads=1).learn(examples)
    assert shapes == [(1, 20), (1, 18)]


def test_responses_without_advantage_count_as_if_they_had_been_run(model):
    """An entropy coefficient of almost 0 makes them run; the gradient stays what it was."""
    examples = make_examples(model)
    gradients, rows = [], []
    for coefficient in (0.0, 1e-30):
        other = copy.deepcopy(model)
        shapes = watch_batches(other)
        learner = make_learner(other, entropy_coefficient=coefficient, packed=False)
        steps = watch(learner)
        learner.learn(examples)
        gradients.append(steps[0][1])
        rows.append(sum(shape[0] for shape in shapes))
    assert rows == [5, 6]
    assert_close(gradients[0], gradients[1])


def clipped_loss(model, old, examples):
    """PPO's loss with bounds [0.8, 1.28] for A ≥ 0 and [0.8, 10] for A < 0 (see test_loss)."""
    total = 0.0
    for example in examples:
        ratio = (plain_logprobs(model, example) - plain_logprobs(old, example).detach()).exp()
        bounds = (0.0, 1.28) if example.advantage >= 0 else (0.8, 10.0)
        total = total - example.advantage * ratio.clamp(*bounds).sum()
    return total / sum(len(e.response) for e in examples)


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
    unclipped = plain_gradient(between, examples[6:])
    assert (
        max(float((a - b).abs().max()) for a, b in zip(steps[1][1], unclipped, strict=True)) > 1e-3
    )


def test_the_engines_logprobs_can_stand_for_the_old_ones(model):
    """They are compared with as they are, also where the learner computes others."""
    examples = make_examples(model, SIZES * 2)
    other = [replace(e, logprobs=e.logprobs + 0.1) for e in examples]
    changed = {}
    for name, given in (("equal", examples), ("other", other)):
        twin = copy.deepcopy(model)
        shapes = watch_batches(twin)
        learner = make_learner(
            twin, mini_batches=2, old_logprobs="engine", importance_cap=0, threads=1, packed=False
        )
        steps = watch(learner)
        learner.learn(given)
        assert sum(rows for rows, _ in shapes) == sum(e.advantage != 0 for e in given)
        changed[name] = steps[0][1]
    assert_close(changed["equal"], plain_gradient(model, examples[:6]))
    ratio = math.exp(-0.1)  # of the learner's probability to the engine's; within the bounds
    assert_close(changed["other"], [ratio * g for g in plain_gradient(model, examples[:6])])


def test_mini_batches_share_the_responses_evenly(model):
    examples = make_examples(model, [(2, 3, 1)] * 10)
    shapes = watch_batches(model)
    make_learner(model, mini_batches=4).learn(examples)
    # First all, for the old log-probabilities, then ten in four parts; 5 tokens each.
    assert shapes == [(1, 50), (1, 15), (1, 15), (1, 10), (1, 10)]


def test_more_mini_batches_than_responses_make_fewer_updates(model):
    learner = make_learner(model, mini_batches=4)
    learner.learn(make_examples(model, [(2, 3, 1.0)] * 2))
    assert learner.updates == 2


def plain_entropy(model, examples, temperature=1.0):
    """−Σ_v π(v) log π(v), averaged over the tokens of all responses."""
    rows = torch.cat([plain_distributions(model, e, temperature) for e in examples])
    return -(rows.exp() * rows).sum(dim=1).mean()


def test_the_entropy_bonus_raises_the_entropy(model):
    examples = make_examples(model, [(p, r, 0.0) for p, r, _ in SIZES], temperature=0.8)
    wanted = gradient_of(-0.5 * plain_entropy(twin := copy.deepcopy(model), examples, 0.8), twin)
    before = plain_entropy(model, examples, 0.8).item()
    learner = make_learner(model, 0.8, entropy_coefficient=0.5, learning_rate=1e-3)
    steps = watch(learner)
    learner.learn(examples)
    assert_close(steps[0][1], wanted)
    assert plain_entropy(model, examples, 0.8).item() > before + 1e-3


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_responses_with_a_positive_advantage_become_likelier(model, advantage):
    (example,) = examples = make_examples(model, [(4, 5, advantage)])
    before = plain_logprobs(model, example).sum().item()
    make_learner(model, learning_rate=1e-3).learn(examples)
    assert (plain_logprobs(model, example).sum().item() - before) * advantage > 0.01


def snapshot(learner):
    optimizer = copy.deepcopy(learner.optimizer.state_dict()["state"])
    return [p.detach().clone() for p in learner.parameters], optimizer, learner.updates


def assert_unchanged(learner, before):
    weights, optimizer, updates = before
    assert all(torch.equal(a, b) for a, b in zip(learner.parameters, weights, strict=True))
    torch.testing.assert_close(learner.optimizer.state_dict()["state"], optimizer, rtol=0, atol=0)
    assert learner.updates == updates


@pytest.mark.parametrize("mini_batches", [1, 2])
@pytest.mark.parametrize(
    "sizes",
    [[], [(2, 3, 0.0)] * 4, [(2, 0, 1.0)] * 4],
    ids=["no response", "no advantage", "no token"],
)
def test_where_nothing_can_be_learnt_nothing_moves(model, sizes, mini_batches):
    """Neither Adam's memory, which would go on by itself, nor the warm-up."""
    learner = make_learner(model, mini_batches=mini_batches, warmup_updates=5, weight_decay=0.1)
    learner.learn(make_examples(model))
    before = snapshot(learner)
    metrics = learner.learn(make_examples(model, sizes))
    assert_unchanged(learner, before)
    assert metrics["skipped_updates"] == 0
    assert all(np.isfinite(value) for value in metrics.values())


def test_only_the_mini_batches_that_teach_something_make_updates(model):
    learner = make_learner(model, mini_batches=3)
    examples = make_examples(model, [(2, 3, 0.0), (2, 3, 1.0), (2, 3, 0.0)])
    learner.learn(examples)
    assert learner.updates == 1


def test_a_gradient_that_is_not_finite_makes_no_update(model):
    learner = make_learner(model, warmup_updates=5)
    learner.learn(make_examples(model))
    before = snapshot(learner)
    metrics = learner.learn(make_examples(model, [(2, 3, np.inf), (2, 3, 1.0)]))
    assert_unchanged(learner, before)
    assert metrics["skipped_updates"] == 1
    assert np.isfinite(metrics["grad_norm"])
    # What was not finite is forgotten: the next update is as good as any.
    examples = make_examples(model, seed=1)
    wanted = plain_gradient(model, examples)
    steps = watch(learner)
    assert learner.learn(examples)["skipped_updates"] == 0
    assert_close(steps[0][1], wanted)


def test_the_gap_to_the_engine_is_a_mean_absolute_difference(model):
    examples = [
        Example(
            e.prompt,
            e.response,
            e.logprobs + np.where(np.arange(len(e.response)) % 2, 0.1, -0.1),
            1.0,
        )
        for e in make_examples(model)
    ]
    assert make_learner(model).learn(examples)["sampler_gap"] == pytest.approx(0.1, rel=1e-3)


def shifted(examples, shift):
    """The same, drawn by an engine that finds every other token e^`shift` times as likely."""
    return [
        Example(
            e.prompt,
            e.response,
            e.logprobs + np.where(np.arange(len(e.response)) % 2, shift, 0.0),
            e.advantage,
        )
        for e in examples
    ]


@pytest.mark.parametrize(("cap", "weight"), [(0.0, 1.0), (10.0, 3.0), (2.0, 2.0), (1.5, 1.5)])
def test_tokens_are_weighted_by_how_much_likelier_the_learner_finds_them(model, cap, weight):
    """Every other token is 3 times as likely to the learner; its share of the gradient grows."""
    examples = make_examples(model, [s for s in SIZES if s[2]])
    twin = copy.deepcopy(model)
    gains, weights = [], []
    for e in examples:
        weights.append(torch.where(torch.arange(len(e.response)) % 2 == 1, weight, 1.0))
        gains.append((e.advantage * weights[-1] * plain_logprobs(twin, e)).sum())
    wanted = gradient_of(-sum(gains) / sum(len(e.response) for e in examples), twin)
    learner = make_learner(model, importance_cap=cap)
    steps = watch(learner)
    metrics = learner.learn(shifted(examples, -np.log(3)))
    assert_close(steps[0][1], wanted)
    flat = torch.cat(weights)
    odd = sum(len(e.response) // 2 for e in examples) / len(flat)
    assert metrics["importance_weight"] == pytest.approx(float(flat.mean()), rel=1e-4)
    assert metrics["importance_truncated"] == (pytest.approx(odd) if 0 < cap < 3 else 0)
    assert metrics["sampler_gap"] == pytest.approx(np.log(3) * odd, rel=1e-3)


def test_with_several_mini_batches_the_weights_are_of_those_that_drew(model):
    """What the first update changes is the clip's affair, and none of the engine's gap."""
    examples = make_examples(model, SIZES * 2)
    learner = make_learner(model, mini_batches=2, learning_rate=2e-2)
    metrics = learner.learn(examples)
    assert metrics["clip_fraction"] > 0
    assert metrics["sampler_gap"] < SAME
    assert metrics["importance_weight"] == pytest.approx(1, rel=1e-4)


def test_engine_and_learner_agree_on_the_probability_of_every_token(model, tokenizer):
    """For each token; in one batch for the engine, padded and unpadded for the learner."""
    prompts = {"a": [5, 9], "b": [3, 14, 4, 7, 11], "c": [12, 6, 5]}
    draws = [Draw(key, i, draw_seed(0, 0, key, i)) for key in prompts for i in range(8)]
    engine = TransformersEngine(model, tokenizer, max_new_tokens=20, temperature=0.8)
    engine.submit(draws, prompts)
    examples = [Example(prompts[c.draw.key], c.tokens, c.logprobs, 1.0) for c in engine.wait()]
    with torch.no_grad():
        for example in examples:
            wanted = plain_logprobs(model, example, 0.8)
            np.testing.assert_allclose(example.logprobs, wanted, rtol=0, atol=SAME)
    assert make_learner(model, 0.8).learn(examples)["sampler_gap"] < SAME


def test_only_parameters_that_require_a_gradient_are_trained(model):
    model.model.layers[0].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    learner = make_learner(model, weight_decay=0.1)
    learner.learn(make_examples(model))
    assert all(p.requires_grad for p in learner.parameters)
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert len(frozen) > 5
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == (name in frozen), name


@pytest.mark.parametrize("threads", [1, 2])
def test_gradient_checkpointing_recomputes_and_changes_nothing_else(threads, make_model, tokenizer):
    """Dropout stays off, and the engine that shares the model keeps its cache."""
    model = make_model(attention_dropout=0.5)
    examples = make_examples(model)
    wanted = plain_gradient(model, examples)
    model.gradient_checkpointing_enable()
    runs = []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    learner = make_learner(model, micro_batch_tokens=10**6, threads=threads)
    steps = watch(learner)
    learner.learn(examples)
    assert_close(steps[0][1], wanted)
    assert len(runs) == 2  # forward, and again on the way back
    assert not any(module.training for module in model.modules())

    draws = [Draw("a", i, draw_seed(0, 0, "a", i)) for i in range(8)]
    tokens = []
    for shared in (model, copy.deepcopy(model)):
        if shared is not model:
            shared.gradient_checkpointing_disable()
        engine = TransformersEngine(shared, tokenizer, max_new_tokens=8)
        engine.submit(draws, {"a": [3, 14, 4]})
        tokens.append([completion.tokens for completion in engine.wait()])
    assert tokens[0] == tokens[1]


def test_an_error_in_the_forward_pass_leaves_the_model_in_evaluation_mode(model):
    model.gradient_checkpointing_enable()
    learner = make_learner(model)
    with pytest.raises(IndexError):
        learner.learn([Example([2], [999], np.zeros(1), 1.0)])
    assert not any(module.training for module in model.modules())
