"""What each part of a method gives: main effects of the study's factorial, with intervals.

    python benchmarks/study/study.py factorial     # trains the cells
    python benchmarks/study/study_effects.py       # the table, from what is recorded

An effect is the difference in held-out avg@4 (mean of the last two evaluations) between two levels
of a factor, with all other factors the same: the coefficient of an ordinary least-squares fit of
main effects to all cells of a set, or of all sets with a mean for each. Intervals are 95 %, by
Student's t with the residuals' variance, so what factors do only together widens them.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats
from study import MAIN_SETS, STUDY, factorial_methods, slug

from rollwise.commands.compare import file_name
from rollwise.statistics.curves import Curve

Floats = NDArray[np.float64]
FACTORS = ("responses", "baseline", "choice", "gradients", "average")
REFERENCES = ("n=4", "group", "uniform", "free", "tokens")
"""The level of each factor that the others are compared with."""


def cells_of(problems: str) -> list[tuple[tuple[str, ...], float]]:
    """Read the recorded cells of a set: the level of each factor, and the accuracy at the end."""
    path = STUDY / f"{slug(problems)}-factorial" / "curves.jsonl"
    if not path.exists():
        return []
    levels = {file_name(name): tuple(name.split()) for name in factorial_methods()}
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        (levels[Path(r["run"]).parts[-2]], float(Curve.from_json(r["curve"]).accuracy[-2:].mean()))
        for r in records
    ]


def main_effects(
    cells: Sequence[tuple[str, tuple[str, ...], float]],
) -> dict[str, dict[str, float]]:
    """Fit main effects by least squares.

    Args:
        cells: Of each run the problem set, the level of each factor, and its accuracy.

    Returns:
        "factor: level" -> the difference from the factor's reference (`value`), `low` and `high`.
    """
    sets = sorted({problems for problems, _, _ in cells})
    tested = [
        (place, level)
        for place, reference in enumerate(REFERENCES)
        for level in sorted({levels[place] for _, levels, _ in cells} - {reference})
    ]
    design: Floats = np.array(
        [
            [problems == each for each in sets] + [levels[place] == of for place, of in tested]
            for problems, levels, _ in cells
        ],
        dtype=float,
    )
    accuracy = np.array([score for _, _, score in cells])
    free = len(cells) - design.shape[1]
    if free < 1:
        raise SystemExit(f"{len(cells)} cells are too few for {design.shape[1]} effects")
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ accuracy
    variance = float(np.sum((accuracy - design @ fitted) ** 2)) / free
    half = stats.t.ppf(0.975, free) * np.sqrt(variance * np.diag(inverse))
    return {
        f"{FACTORS[place]}: {level}": {"value": value, "low": value - h, "high": value + h}
        for (place, level), value, h in zip(
            tested, fitted[len(sets) :].tolist(), half[len(sets) :].tolist(), strict=True
        )
    }


def main() -> None:
    """Print the table, and one line of JSON."""
    recorded = {name: [(name, *cell) for cell in cells_of(name)] for name in MAIN_SETS}
    recorded = {name: cells for name, cells in recorded.items() if cells}
    if not recorded:
        raise SystemExit("nothing is recorded: run `study.py factorial` first")
    everything = [cell for cells in recorded.values() for cell in cells]
    parts = {"all sets": everything} | (recorded if len(recorded) > 1 else {})
    effects = {name: main_effects(cells) for name, cells in parts.items()}
    table = Table("effect", *(f"{name} ({len(cells)} runs)" for name, cells in parts.items()))
    for effect in effects["all sets"]:
        row = [each[effect] for each in effects.values()]
        table.add_row(
            effect, *(f"{e['value']:+.3f} [{e['low']:+.3f}, {e['high']:+.3f}]" for e in row)
        )
    Console().print(table)
    print(json.dumps(effects))


if __name__ == "__main__":
    main()
