"""Pass rates of prompts, from a file or a distribution."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from rollwise.errors import DataError
from rollwise.tasks.readers import MOST_DRAWN, level_of
from rollwise.tasks.tables import Row, read_table

RATES = np.concatenate([[0.0], special.expit(np.linspace(-7, 7, 141)), [1.0]])
"""Pass rates that a fitted distribution may have, G of them: evenly spaced logits, and 0 and 1."""

ROUNDS = 100
"""Of EM. With few responses a prompt, more only gather the weight at single rates."""


@dataclass(frozen=True)
class RatedPrompt:
    """A prompt, and how often it is solved.

    Attributes:
        key: Names it.
        pass_rate: The probability that a response is correct.
        level: Its labelled difficulty, if there is one.
        measured: How many responses were correct, and how many drawn, when the pass rate was
            measured; 0 and 0 if it is not said.
    """

    key: str
    pass_rate: float
    level: int | None = None
    measured: tuple[float, float] = (0.0, 0.0)


def read_pass_rates(path: str | Path) -> list[RatedPrompt]:
    """Read the column `pass_rate` of a file, and `key`, `level` and `drawn` where it has them.

    Raises:
        DataError: The file cannot be read, lacks the column or has no row; a pass rate is not
            within [0, 1], or a number of responses not above 0; or two rows have one key.
    """
    table = read_table(Path(path), "", None, {"pass_rate", "key", "level", "drawn"})
    if "pass_rate" not in table.columns:
        held = ", ".join(table.columns) or "none"
        raise DataError(f"{table.name}: it needs a column `pass_rate`; its columns are {held}")
    found: dict[str, RatedPrompt] = {}
    for number, row in enumerate(table.rows):
        prompt = _rated(row, number)
        if prompt.key in found:
            raise row.error("`key` must differ from those of other rows", prompt.key)
        found[prompt.key] = prompt
    if not found:
        raise DataError(f"{table.name} has no rows")
    return list(found.values())


def _rated(row: Row, number: int) -> RatedPrompt:
    rate, drawn = row.cells.get("pass_rate"), row.cells.get("drawn")
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise row.error("`pass_rate` must be a number from 0 to 1", rate)
    measured = (0.0, 0.0)
    if drawn is not None:
        if not isinstance(drawn, int | float) or not 0 < drawn <= MOST_DRAWN:
            raise row.error("`drawn` must be a number of responses above 0", drawn)
        measured = float(rate * drawn), float(drawn)
    return RatedPrompt(row.text("key") or f"row {number}", float(rate), level_of(row), measured)


def spread_pass_rates(alpha: float, beta: float, count: int) -> list[RatedPrompt]:
    """Take the quantiles (i + ½) / P of a Beta distribution of α and β, for P prompts."""
    rates_P = stats.beta.ppf((np.arange(count) + 0.5) / count, alpha, beta)
    return [RatedPrompt(f"prompt {i}", float(rate)) for i, rate in enumerate(rates_P)]


def resample_pass_rates(
    prompts: Sequence[RatedPrompt], rng: np.random.Generator
) -> list[RatedPrompt]:
    """Replace measured pass rates by ones that may be behind them.

    Of c correct responses among n, c/n scatters more than the pass rate itself. So each is drawn
    from its posterior, by the distribution that fits all counts (`posterior_rates`); what is not
    said to be measured stays as it is.
    """
    measured = [prompt for prompt in prompts if prompt.measured[1]]
    if not measured:
        return list(prompts)
    counts, of_M, times = np.unique(
        np.round([prompt.measured for prompt in measured], 6),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    below = np.cumsum(posterior_rates(counts[:, 0], counts[:, 1], times), axis=1)
    luck_M = rng.random(len(measured)) * below[of_M.ravel(), -1]
    rates_M = [
        RATES[np.searchsorted(below[row], luck, side="right")]
        for row, luck in zip(of_M.ravel(), luck_M, strict=True)
    ]
    drawn = iter(rates_M)
    return [
        replace(prompt, pass_rate=float(next(drawn))) if prompt.measured[1] else prompt
        for prompt in prompts
    ]


def posterior_rates(
    correct: NDArray[np.float64], drawn: NDArray[np.float64], times: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Say how probable each of `RATES` is behind each of U counts, shape (U, G).

    Their prior is a distribution over `RATES` of any shape that fits all counts (the nonparametric
    maximum likelihood of Kiefer and Wolfowitz 1956), by EM from an even one (Laird 1978). A Beta
    distribution would be too smooth: where many prompts are solved mostly and others hardly ever,
    it takes rates of 0.03 for 0. `times` says how many prompts have each count.
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
