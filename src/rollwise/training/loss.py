"""The policy-gradient loss, token by token."""

from collections.abc import Sequence

import torch
from torch import Tensor

PROBABILITY_BOUND = 1e-6
"""Probabilities are kept this far from 0 and 1 where divergences are computed."""

LOG_RATIO_BOUND = 20.0
"""Log-ratios are clamped to ±20 before `exp`, which is infinite above 88 in float32; times an
advantage or a derivative of 0, that is NaN. The clip and the cap bound far smaller ratios."""


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float = 10.0,
) -> tuple[Tensor, Tensor]:
    """Compute PPO's clipped loss of each token, to be averaged over all tokens of the batch.

    The ratio π/π_old is clipped to [1 − `clip_low`, 1 + `clip_high`] (PPO, arXiv 1707.06347,
    equation 7; bounds set apart as in DAPO, arXiv 2503.14476, equation 10). Where the advantage is
    negative, the loss is at most `dual_clip` times its size (dual-clip PPO, arXiv 1912.09729,
    equation 5).

    Args:
        logprobs: log π of the tokens under the weights being trained, shape (T,).
        old_logprobs: The same under the weights that drew them, shape (T,), without gradient.
        advantages: Of the response that each token is in, shape (T,).
        clip_low: Below 1.
        clip_high: Above 0.
        dual_clip: Above 1.

    Returns:
        The loss, and where a bound holds it so that it has no gradient; shape (T,) each.
    """
    ratio = _ratio(logprobs, old_logprobs)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(plain, clipped)
    ceiling = -advantages * dual_clip
    capped = (advantages < 0) & (loss > ceiling)
    return torch.where(capped, ceiling, loss), (clipped > plain) | capped


def importance_weights(old_logprobs: Tensor, sampler_logprobs: Tensor, cap: float) -> Tensor:
    """Weigh each token by min(π_old/π_sampler, `cap`), so that its expectation is the learner's.

    An engine that computes differently from the learner draws from another policy; this corrects
    for it, with bounded variance at the price of a bias where the cap holds (truncated
    importance sampling, Ionides 2008; for this mismatch Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training").

    Args:
        old_logprobs: log π of the tokens by the learner, under the weights that drew them, (T,).
        sampler_logprobs: The same as the engine reports it, at its sampling temperature, (T,).
        cap: Above 0; 0 makes no correction: all weights, shape (T,), are 1.
    """
    if cap == 0:
        return torch.ones_like(sampler_logprobs)
    return _ratio(old_logprobs, sampler_logprobs).clamp(max=cap).detach()


def kl_estimate(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Estimate KL(π_old ‖ π) from each token that π_old drew, as r − 1 − log r with r = π/π_old.

    Never below 0, and without bias (Schulman 2020, "Approximating KL divergence", k3).

    Args:
        logprobs: log π of the tokens, shape (T,).
        old_logprobs: log π_old of them, shape (T,).
    """
    ratio = _ratio(logprobs, old_logprobs)
    return ratio - 1 - ratio.log()


def diverged_responses(
    sampler_logprobs: Tensor, logprobs: Tensor, lengths: Sequence[int], limit: float
) -> Tensor:
    """Return on which of R responses engine and learner disagree too much to learn from them.

    The Bernoulli divergence of a token, p·log(p/q) + (1 − p)·log((1 − p)/(1 − q)), with p its
    probability under the engine and q that under the learner, both within [1e-6, 1 − 1e-6], is
    averaged over the tokens of a response and compared with the limit (FlashREINFORCE).

    Args:
        sampler_logprobs: log p of the tokens of the responses, one after another, shape (T,).
        logprobs: log q of them, shape (T,).
        lengths: Tokens of each response, shape (R,); above 0.
        limit: Above 0.
    """
    low, high = PROBABILITY_BOUND, 1 - PROBABILITY_BOUND
    p, q = (x.detach().exp().clamp(low, high) for x in (sampler_logprobs, logprobs))
    divergence = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    sizes = torch.tensor(lengths, device=divergence.device)
    return torch.segment_reduce(divergence, "mean", lengths=sizes) > limit


def _ratio(logprobs: Tensor, others: Tensor) -> Tensor:
    """Return π/π' of tokens from their log-probabilities, the log-ratio clamped."""
    return (logprobs - others).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
