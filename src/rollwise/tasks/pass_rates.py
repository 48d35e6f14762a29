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

STRENGTHS = np.geomspace(0.05, 500, 200)
"""Values of α + β that a fit tries."""


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
    """Take the quantiles (i + ½) / P of a Beta distribution, for P prompts.

    Args:
        alpha: α.
        beta: β.
        count: P.
    """
    rates_P = stats.beta.ppf((np.arange(count) + 0.5) / count, alpha, beta)
    return [RatedPrompt(f"prompt {i}", float(rate)) for i, rate in enumerate(rates_P)]


def resample_pass_rates(
    prompts: Sequence[RatedPrompt], rng: np.random.Generator
) -> list[RatedPrompt]:
    """Replace measured pass rates by ones that may be behind them.

    Of c correct responses among n, c/n scatters more than the pass rate itself. So each is drawn
    from its posterior Beta(α + c, β + n − c), with the α and β that fit all counts best; what is
    not said to be measured stays as it is.

    Args:
        prompts: P prompts.
        rng: Draws them.
    """
    correct_P, drawn_P = np.array([prompt.measured for prompt in prompts]).reshape(-1, 2).T
    if not drawn_P.any():
        return list(prompts)
    alpha, beta = fit_beta(correct_P, drawn_P)
    rates_P = rng.beta(alpha + correct_P, beta + drawn_P - correct_P)
    return [
        replace(prompt, pass_rate=float(rate)) if prompt.measured[1] else prompt
        for prompt, rate in zip(prompts, rates_P, strict=True)
    ]


def fit_beta(correct: NDArray[np.float64], drawn: NDArray[np.float64]) -> tuple[float, float]:
    """Fit α and β to counts: the mean is that of all responses, α + β the likeliest.

    The counts of one prompt are beta-binomial. The mean is kept half a response away from 0 and 1.

    Args:
        correct: c, shape (P,).
        drawn: n, shape (P,); prompts with 0 tell nothing.
    """
    c, n = correct[drawn > 0], drawn[drawn > 0]
    mean = np.clip(c.sum() / n.sum(), 0.5 / n.sum(), 1 - 0.5 / n.sum())
    alpha_S, beta_S = mean * STRENGTHS, (1 - mean) * STRENGTHS
    likelihood_S = [
        float(np.sum(special.betaln(a + c, b + n - c) - special.betaln(a, b)))
        for a, b in zip(alpha_S, beta_S, strict=True)
    ]
    best = int(np.argmax(likelihood_S))
    return float(alpha_S[best]), float(beta_S[best])
