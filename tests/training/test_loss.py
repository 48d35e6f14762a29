"""The clipped loss, token by token, against what its definition gives by hand."""

import numpy as np
import pytest
import torch

from rollwise.training.loss import diverged_responses, importance_weights, policy_loss

# With bounds [0.8, 1.28] and a dual clip of 10, of min(ρA, clip(ρ)A), for A < 0 at least 10·A:
# name, ρ, A, the loss (its negative), whether a bound holds it. Where none does, the loss is −ρA
# and its derivative by log π too.
REGIONS = [
    ("inside, A > 0", 1.1, 2.0, -2.2, False),
    ("inside, A < 0", 1.1, -2.0, 2.2, False),
    ("unchanged", 1.0, 0.5, -0.5, False),
    ("above, A > 0: gained enough", 1.5, 2.0, -2.56, True),
    ("below, A > 0: must be able to come back", 0.5, 2.0, -1.0, False),
    ("above, A < 0: must be able to come back", 1.5, -2.0, 3.0, False),
    ("below, A < 0: lost enough", 0.5, -2.0, 1.6, True),
    ("just below the dual clip", 9.9, -2.0, 19.8, False),
    ("dual clip", 12.0, -2.0, 20.0, True),
    ("no dual clip where A > 0", 12.0, 2.0, -2.56, True),
    ("no advantage", 1.5, 0.0, 0.0, False),
]


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "held"),
    [r[1:] for r in REGIONS],
    ids=[r[0] for r in REGIONS],
)
def test_every_region_by_hand(ratio, advantage, expected, held):
    old = torch.tensor([-1.5], dtype=torch.float64)
    logprobs = (old + np.log(ratio)).requires_grad_()
    loss, clipped = policy_loss(logprobs, old, torch.tensor([advantage], dtype=torch.float64))
    loss.sum().backward()
    assert loss.item() == pytest.approx(expected)
    assert clipped.item() is held
    assert logprobs.grad.item() == pytest.approx(0.0 if held else -ratio * advantage)


@pytest.mark.parametrize("log_ratio", [20.0, 89.0, 1e4, -20.0, -1e4])
@pytest.mark.parametrize("advantage", [2.0, -2.0, 0.0])
def test_ratios_beyond_float32_have_a_finite_loss_and_no_gradient_from_a_bound(
    log_ratio, advantage
):
    """e^89 is infinite in float32; the clip at 1.28 or the dual clip at 10 holds far below it."""
    logprobs = torch.tensor([log_ratio], requires_grad=True)
    loss, _ = policy_loss(logprobs, torch.zeros(1), torch.tensor([advantage]))
    loss.sum().backward()
    bounds = {2.0: (0.0, 1.28), -2.0: (0.8, 10.0), 0.0: (0.0, 0.0)}[advantage]
    bound = bounds[1] if log_ratio > 0 else bounds[0]
    assert loss.item() == pytest.approx(-advantage * bound, abs=1e-6)
    assert logprobs.grad.item() == pytest.approx(0.0, abs=1e-6)


def test_importance_weights_by_hand():
    """π_old/π_sampler = 1, 1.5, ½, 3 and e^200 (more than a float32 holds), at most 2."""
    ratios = torch.tensor([1.0, 1.5, 0.5, 3.0])
    old = torch.cat([ratios.log() - 1.2, torch.tensor([-1.2 + 200])]).requires_grad_()
    sampler = torch.full((5,), -1.2)
    weights = importance_weights(old, sampler, cap=2.0)
    torch.testing.assert_close(weights, torch.tensor([1.0, 1.5, 0.5, 2.0, 2.0]))
    assert not weights.requires_grad
    assert importance_weights(old, sampler, cap=0).tolist() == [1.0] * 5


def test_the_divergence_of_a_response_by_hand():
    """p = ½ and q = ¼: ½·log 2 + ½·log ⅔ = 0.1438 nats; beside a token on which both agree, half.

    Probabilities of 0 and 1 are kept 1e-6 from these: log(1 − 1e-6 over ½) is about log 2.
    """
    half, quarter = np.log(0.5), np.log(0.25)
    sampler = torch.tensor([half, half, half, 0.0])
    learner = torch.tensor([quarter, quarter, half, half])
    lengths = [1, 2, 1]
    wanted = [0.14384, 0.07192, 0.69313]
    for limit in (0.05, 0.1, 0.5, 0.7):
        found = diverged_responses(sampler, learner, lengths, limit)
        assert found.tolist() == [value > limit for value in wanted]
