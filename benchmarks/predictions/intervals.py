"""How often 95 % intervals over few problems hold the truth, and how wide they are.

Simulates avg@32 of P problems whose pass rates follow a Beta distribution, for several means and
concentrations α + β, and covers its mean by `mean_over_problems` and by a percentile bootstrap over
problems; *oracle* is the width of the mean's 95 % range. The second table has the share of two
equal models that are shown to differ, by `paired_difference` and by the bootstrap: these answer the
same problems once or 32 times.

    python benchmarks/predictions/intervals.py [--quick] [--samples N] [--seed N]
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rollwise.statistics import Estimate, mean_over_problems, paired_difference

sys.path.append(str(Path(__file__).parents[1]))

from measuring import Figure, arguments, print_line, print_table

PROBLEMS = (5, 10, 30, 100)
MEANS = (0.05, 0.2, 0.5)
CONCENTRATIONS = (0.3, 1.0, 3.0, 20.0)
"""From U-shaped, where nearly all problems are solved always or never, to nearly equal problems."""

RESPONSES = 32
RESAMPLES = 2000

Floats = NDArray[np.float64]


def bootstrap(values_EP: Floats, rng: np.random.Generator) -> list[Estimate]:
    """Return means with their percentile bootstrap intervals, of each row."""
    problems = values_EP.shape[1]
    weights_BP = rng.multinomial(problems, np.ones(problems) / problems, RESAMPLES) / problems
    ends_2E = np.quantile(values_EP @ weights_BP.T, [0.025, 0.975], axis=1)
    return [Estimate(*each) for each in zip(values_EP.mean(axis=1), *ends_2E, strict=True)]


def share(found: list[Estimate], is_counted: Callable[[Estimate], bool]) -> Estimate:
    """Return the share of estimates that count, with its exact binomial interval."""
    return mean_over_problems([is_counted(each) for each in found])


def covers(mean: float) -> Callable[[Estimate], bool]:
    """Return whether an interval holds the mean; 1e-9 is for rounding."""
    return lambda each: each.low - 1e-9 <= mean <= each.high + 1e-9


def width(found: list[Estimate]) -> float:
    """Return the mean width of intervals."""
    return float(np.mean([each.high - each.low for each in found]))


def means_at(problems: int, mean: float, samples: int, rng: np.random.Generator) -> dict:
    """Return, by concentration, the coverages and the widths of both methods, and the oracle's."""
    found = {}
    for concentration in CONCENTRATIONS:
        of = mean * concentration, (1 - mean) * concentration
        values_EP = rng.binomial(RESPONSES, rng.beta(*of, (samples, problems))) / RESPONSES
        ours = [mean_over_problems(values_P) for values_P in values_EP]
        theirs = bootstrap(values_EP, rng)
        low, high = np.quantile(values_EP.mean(axis=1), [0.025, 0.975])
        found[concentration] = {
            "coverage": (share(ours, covers(mean)), share(theirs, covers(mean))),
            "width": (width(ours), width(theirs), float(high - low)),
        }
    return found


def differences_at(
    problems: int, mean: float, responses: int, samples: int, rng: np.random.Generator
) -> tuple[Estimate, Estimate]:
    """Return the largest share of equal models that are shown to differ, of both methods."""
    found = []
    for concentration in CONCENTRATIONS:
        of = mean * concentration, (1 - mean) * concentration
        rates_EP = rng.beta(*of, (samples, problems))
        first_EP, second_EP = rng.binomial(responses, rates_EP, (2, samples, problems)) / responses
        ours = [paired_difference(*each) for each in zip(first_EP, second_EP, strict=True)]
        theirs = bootstrap(first_EP - second_EP, rng)
        found.append(tuple(share(each, differs) for each in (ours, theirs)))
    ours, theirs = (max(each, key=lambda e: e.value) for each in zip(*found, strict=True))
    return ours, theirs


def differs(estimate: Estimate) -> bool:
    """Return whether 0 is outside the interval."""
    return estimate.verdict("yes", "yes") == "yes"


def main() -> None:
    """Simulate, print."""
    given = arguments(__doc__, "20 samples of each kind", samples=400, seed=0).parse_args()
    samples, rng = 20 if given.quick else given.samples, np.random.default_rng(given.seed)
    tables: dict[str, list[list[str]]] = {
        "Lowest coverage, rollwise (bootstrap)": [],
        "Mean width at concentration 1, rollwise (bootstrap; oracle)": [],
        "Equal models that differ, 32 responses; 1 (bootstrap's in brackets)": [],
    }
    results: dict[str, Figure] = {}
    for problems in PROBLEMS:
        cells: tuple[list[str], ...] = ([], [], [])
        for mean in MEANS:
            where = f"{problems} problems, mean {mean}"
            found = means_at(problems, mean, samples, rng)
            ours, theirs = (
                min((each["coverage"][place] for each in found.values()), key=lambda e: e.value)
                for place in range(2)
            )
            results[f"coverage, {where}"] = vars(ours)
            results[f"coverage of the bootstrap, {where}"] = vars(theirs)
            cells[0].append(f"{ours.value:.3f} ({theirs.value:.3f})")
            own, other, oracle = found[1.0]["width"]
            cells[1].append(f"{own:.2f} ({other:.2f}; {oracle:.2f})")
            shown = []
            for responses in (RESPONSES, 1):
                ours, theirs = differences_at(problems, mean, responses, samples, rng)
                results[f"equal models that differ, {responses}, {where}"] = vars(ours)
                shown.append(f"{ours.value:.3f} ({theirs.value:.3f})")
            cells[2].append("; ".join(shown))
        for rows, row in zip(tables.values(), cells, strict=True):
            rows.append([str(problems), *row])
    for title, rows in tables.items():
        print_table(title, ("problems", *(f"mean {mean}" for mean in MEANS)), rows)
    print_line(results)


if __name__ == "__main__":
    main()
