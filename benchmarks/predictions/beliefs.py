"""Which belief predicts the next draws best, on recorded histories of real runs.

A history holds which prompts a run drew, step after step, and how many responses were correct. Each
belief says before a step what pass rates it expects, is scored, and is told what came. Log loss is
that of one response in nats, averaged over visits: a prompt's first, second, third, and later ones.
*Off* is how far the mean expectation lies from the pass rate in the worst of ten equal parts of the
visits, in points, without the first step, of which nothing is known. The largest of ten gaps is
above 0 by chance too: *by chance* is its mean, and its 95 % quantile, if responses are drawn from
what the belief expects. *Rank* is Spearman's correlation over the visits after the first. The
intervals are 95 %, by resampling steps in blocks of ten, and are of the difference from the best
belief.

A history is a file with a line for each visit, `step,prompt,correct,drawn`, compressed by gzip if
its name ends so. Those in `histories/` are runs of the built-in model with 1,024 prompts: GRPO on
2 to 10 terms, and single responses with the belief as baseline on 2 to 10 and 7 to 10 terms.

    python benchmarks/predictions/beliefs.py [--quick] [--histories FILE ...] [--seed N]
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rollwise.beliefs import Belief, DecayedBeta, LogitKalman

sys.path.append(str(Path(__file__).parents[1]))

from measuring import arguments, print_line, print_table, shown

SHIPPED = Path(__file__).parent / "histories"
VISITS = ("first", "second", "third", "later")
BLOCK = 10
CERTAIN = 1e-3
PARTS = 10
SIMULATED = 100
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Constant(Belief):
    """Expects of every prompt the share of correct responses so far; older steps count less."""

    decay: float = 0.8
    strength: float = 2.0

    def __post_init__(self) -> None:
        self.correct, self.drawn = 1.0, 2.0

    def believe(self, indices: Any) -> tuple[Floats, Floats]:
        """Return the share, for all alike."""
        count = len(np.arange(self.total)[indices])
        return np.full(count, self.correct / self.drawn), np.full(count, self.strength)

    def learn(self, indices: Ints, correct: Ints, drawn: Ints) -> None:
        """Count the responses of a step."""
        self.correct = self.decay * self.correct + float(np.sum(correct))
        self.drawn = self.decay * self.drawn + float(np.sum(drawn))


class FixedVariance(LogitKalman):
    """Keeps the variance of the set."""

    def _scale_by(self, *surprises: Floats) -> None:
        """Learn nothing."""


COMPARED: dict[str, Callable[[int], Belief]] = {
    "constant": lambda total: Constant(total),
    "decayed Beta, 0.5": lambda total: DecayedBeta(total, decay=0.5),
    "decayed Beta, 0.7": lambda total: DecayedBeta(total, decay=0.7),
    "decayed Beta, 0.9": lambda total: DecayedBeta(total, decay=0.9),
    "logit Kalman, no drift": lambda total: LogitKalman(total, drift_gain=0.0),
    "logit Kalman, fixed variance": lambda total: FixedVariance(total),
    "logit Kalman": lambda total: LogitKalman(total),
}


def main() -> None:
    """Score each belief on each history; print tables and one line of JSON."""
    parser = arguments(__doc__, "the first 30 steps of each history", seed=0)
    parser.add_argument("--histories", nargs="+", type=Path, metavar="FILE")
    given = parser.parse_args()
    results = {}
    for file in given.histories or sorted(SHIPPED.glob("*.csv.gz")):
        history = read_history(file, steps=30 if given.quick else None)
        scored = {name: replay(make, history) for name, make in COMPARED.items()}
        run = file.name.split(".")[0]
        found = summarize(scored, np.random.default_rng(given.seed))
        show(f"{run}: {len(history)} visits", found)
        for name, row in found.items():
            results[f"{run}, {name}"] = {"value": row["loss"]}
            results[f"{run}, {name}, above the best"] = row["behind_best"]
    print_line(results)


def read_history(file: Path, steps: int | None = None) -> Ints:
    """Read step, prompt, correct and drawn of each visit, shape (V, 4), by step."""
    history = np.loadtxt(file, dtype=np.int64, delimiter=",", ndmin=2)
    history = history[np.argsort(history[:, 0], kind="stable")]
    return history if steps is None else history[history[:, 0] <= history[0, 0] + steps]


def replay(make: Callable[[int], Belief], history: Ints) -> dict[str, Floats]:
    """Let a belief live through a history; returns what it said at each visit, shape (V,) each."""
    total = int(history[:, 1].max()) + 1
    belief, visits = make(total), np.zeros(total, dtype=int)
    rows: list[Floats] = []
    starts = np.flatnonzero(np.diff(history[:, 0], prepend=-1))
    for part in np.split(history, starts[1:]):
        step, indices, correct, drawn = part.T
        mean, strength = belief.believe(indices)
        expected = mean.clip(CERTAIN, 1 - CERTAIN)
        hits = correct / drawn
        loss = -(hits * np.log(expected) + (1 - hits) * np.log1p(-expected))
        visit = np.minimum(visits[indices], 3)
        rows.append(np.stack([step, visit, expected, strength, drawn, hits, loss], axis=1))
        belief.learn(indices, correct, drawn)
        visits[indices] += 1
    columns = np.concatenate(rows).T
    names = ("step", "visit", "expected", "strength", "drawn", "hits", "loss")
    return dict(zip(names, columns, strict=True))


def summarize(
    scored: dict[str, dict[str, Floats]], rng: np.random.Generator
) -> dict[str, dict[str, Any]]:
    """Figures of each belief on one history."""
    best = min(COMPARED, key=lambda name: scored[name]["loss"].mean())
    figures = {}
    for name, visits in scored.items():
        again = visits["visit"] > 0
        rank = stats.spearmanr(visits["expected"][again], visits["hits"][again]).statistic
        figures[name] = {
            "loss": float(visits["loss"].mean()),
            "behind_best": difference(visits, scored[best], rng),
            "by_visit": [
                float(visits["loss"][at].mean()) if at.any() else None
                for at in (visits["visit"] == visit for visit in range(len(VISITS)))
            ],
            "off": worst_part(visits),
            "off_by_chance": worst_part_by_chance(visits, rng),
            "rank": float(rank),
        }
    return figures


def difference(
    visits: dict[str, Floats], best: dict[str, Floats], rng: np.random.Generator
) -> dict[str, float]:
    """Mean of the loss above the best belief's, with an interval by resampling blocks of steps."""
    above, block = visits["loss"] - best["loss"], visits["step"] // BLOCK
    _, member = np.unique(block, return_inverse=True)
    sums, sizes = np.bincount(member, above), np.bincount(member)
    drawn = rng.integers(0, len(sums), (2_000, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / sizes[drawn].sum(1), (0.025, 0.975)).tolist()
    return {"value": float(above.mean()), "low": low, "high": high}


def worst_part(visits: dict[str, Floats]) -> float:
    """The largest gap between expectation and pass rate over parts by expectation, in points."""
    order = by_expectation(visits)
    return worst_gap((visits["expected"] - visits["hits"])[order])


def by_expectation(visits: dict[str, Floats]) -> Ints:
    """The visits after the first step, in order of what was expected."""
    order = np.argsort(visits["expected"], kind="stable")
    return order[visits["step"][order] > visits["step"].min()]


def worst_gap(surprises: Floats) -> float:
    """The largest mean over ten equal parts, without its sign, in points."""
    return 100 * max(abs(float(part.mean())) for part in np.array_split(surprises, PARTS))


def worst_part_by_chance(visits: dict[str, Floats], rng: np.random.Generator) -> dict[str, float]:
    """What `worst_part` would be if responses came as expected: its mean and 95 % quantile.

    A visit's pass rate is drawn from the Beta distribution that the belief says, and its responses
    by this pass rate.
    """
    order = by_expectation(visits)
    mean, strength, drawn = (visits[name][order] for name in ("expected", "strength", "drawn"))
    found = []
    for _ in range(SIMULATED):
        single = drawn.max() == 1  # then only the mean matters
        pass_rates = mean if single else rng.beta(strength * mean, strength * (1 - mean))
        found.append(worst_gap(mean - rng.binomial(drawn.astype(int), pass_rates) / drawn))
    return {"value": float(np.mean(found)), "high": float(np.quantile(found, 0.95))}


def show(title: str, figures: dict[str, dict[str, Any]]) -> None:
    """Print figures as a table."""
    columns = ("", "log loss", "above the best", *VISITS, "off", "by chance", "rank")
    rows = (
        (
            name,
            f"{row['loss']:.4f}",
            shown(row["behind_best"], ".4f"),
            *("" if loss is None else f"{loss:.4f}" for loss in row["by_visit"]),
            f"{row['off']:.1f}",
            "{value:.1f}, {high:.1f}".format(**row["off_by_chance"]),
            f"{row['rank']:.2f}",
        )
        for name, row in figures.items()
    )
    print_table(title, columns, rows)


if __name__ == "__main__":
    main()
