"""Pass rates of prompts: from a distribution, or those that may be behind measured ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

RATES = np.concatenate([[0.0], special.expit(np.linspace(-7, 7, 141)), [1.0]])
"""Pass rates that a fitted distribution may have, G of them: evenly spaced logits, and 0 and 1."""

ROUNDS = 100
"""Rounds of EM. With few responses per prompt, more only gather the weight at single rates."""


@dataclass(frozen=True)
class RatedPrompt:
    """A prompt by its key, the probability that a response is correct, and its labelled difficulty.

    `measured` says how many responses were correct, and how many drawn, when the pass rate was
    measured; 0 and 0 if it was not.
    """

    key: str
    pass_rate: float
    level: int | None = None
    measured: tuple[float, float] = (0.0, 0.0)


def spread_pass_rates(alpha: float, beta: float, count: int) -> list[RatedPrompt]:
    """Take the quantiles (i + ½) / P of a Beta distribution of α and β, for P prompts."""
    rates_P = stats.beta.ppf((np.arange(count) + 0.5) / count, alpha, beta)
    return [RatedPrompt(f"prompt {i}", float(rate)) for i, rate in enumerate(rates_P)]


def resample_pass_rates(
    prompts: Sequence[RatedPrompt], rng: np.random.Generator
) -> list[RatedPrompt]:
    """Replace measured pass rates by ones that may be behind them.

    With c of n responses correct, c/n scatters more than the pass rate itself. So each rate is
    drawn from its posterior under the distribution that fits all counts (`posterior_rates`).
    """
    counts, of_P, times = np.unique(
        [prompt.measured for prompt in prompts], axis=0, return_inverse=True, return_counts=True
    )
    below = np.cumsum(posterior_rates(counts[:, 0], counts[:, 1], times), axis=1)[of_P.ravel()]
    luck_P = rng.random(len(prompts)) * below[:, -1]
    rates_P = RATES[(below <= luck_P[:, None]).sum(axis=1)]
    pairs = zip(prompts, rates_P.tolist(), strict=True)
    return [replace(prompt, pass_rate=rate) for prompt, rate in pairs]


def posterior_rates(
    correct: NDArray[np.float64], drawn: NDArray[np.float64], times: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the probability of each of `RATES` given each of U counts, shape (U, G).

    Their prior is a distribution over `RATES` of any shape that fits all counts (the nonparametric
    maximum likelihood of Kiefer and Wolfowitz 1956), by EM from a uniform one (Laird 1978). A Beta
    distribution would be too smooth: if many prompts are mostly solved and others hardly ever, it
    takes rates of 0.03 for 0. `times` says how many prompts have each count.
    """
    c, n = correct[:, None], drawn[:, None]
    logs_UG = special.xlogy(c, RATES) + special.xlog1py(n - c, -RATES)
    likelihood_UG = np.exp(logs_UG - logs_UG.max(axis=1, keepdims=True))
    posterior_UG: NDArray[np.float64] = likelihood_UG
    prior_G = np.full(len(RATES), 1 / len(RATES))
    for _ in range(ROUNDS):
        joint_UG = likelihood_UG * prior_G
        posterior_UG = joint_UG / joint_UG.sum(axis=1, keepdims=True)
        prior_G = times @ posterior_UG / times.sum()
    return posterior_UG
