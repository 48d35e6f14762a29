"""What features and earlier runs are worth where a run sees each prompt at most once.

A set has 20,000 prompts, of which a run draws 2,048, each once: 32 steps of 64. The logit of a pass
rate is the sum of a level, what columns explain, and the prompt's own part; the policy starts so
that 61 % of groups of four would have no variance. Learning is simulated: the level of all prompts
rises at each step by the step's signal (M/N)² = (Σ A·(r − p))² / Σ A², in expectation, times a
constant. So a method gains by choosing prompts that teach and by a good baseline, and by nothing
else.

    python benchmarks/predictions/unseen.py [--quick] [--seeds N]

*Tokens* is the share of responses that a method needs to raise the level as far as uniform choice
with the batch's mean does in the whole run (above 1: extrapolated). Log loss, in nats, is of first
visits to prompts drawn uniformly, without the first four steps. *Off* is the largest gap between
expectation and pass rate among ten equal parts of these visits, of all seeds together, in points,
and in parentheses what it would be by chance on average. *Recovered* is the number of steps after
columns have turned until the loss is within 0.02 of that without features, over four steps.
Intervals are 95 %, over seeds.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from beliefs import Constant
from numpy.typing import NDArray

import rollwise as rw
from rollwise.beliefs import Belief, Features, LogitKalman

sys.path.append(str(Path(__file__).parents[1]))

from measuring import Figure, arguments, over_seeds, print_line, print_table, shown

Floats = NDArray[np.float64]
TOTAL, STEPS, BATCH = 20_000, 32, 64
LEVEL, EXPLAINED, OWN = -1.2, 2.2, 0.8
"""Mean logit at the start, and the standard deviations of the two other parts."""
GAIN = 0.12
"""Logits that all prompts gain by a step of perfect signal, of ¼ a response."""
BURN_IN = 4
"""Steps that calibration leaves out, because nothing is known before them."""
LABELS, DIMENSIONS = 8, 16
KINDS = ("informative", "useless", "misleading")


@dataclass(frozen=True)
class Prompts:
    """A set: what columns say, and the logits that they explain and do not.

    Attributes:
        columns: A label, a number and a vector for each prompt.
        explained: By the columns, shape (TOTAL,).
        own: The rest, shape (TOTAL,).
        turns: Whether `explained` changes its sign halfway.
    """

    columns: Mapping[str, Any]
    explained: Floats
    own: Floats
    turns: bool

    @classmethod
    def make(cls, kind: str, rng: np.random.Generator) -> "Prompts":
        """Make a set whose columns are `informative`, `useless` or `misleading`."""
        label = rng.integers(LABELS, size=TOTAL)
        number, vector = rng.normal(size=TOTAL), rng.normal(size=(TOTAL, DIMENSIONS))
        parts = [rng.normal(size=LABELS)[label], number, vector @ rng.normal(size=DIMENSIONS)]
        explained = sum((part - part.mean()) / part.std() for part in parts)
        explained *= EXPLAINED / explained.std()
        if kind == "useless":
            explained = rng.permutation(explained)
        columns = {
            "source": [f"set {each}" for each in label],
            "prompt_tokens": np.exp(5 + number / 2).tolist(),
            "embedding": vector,
        }
        return cls(columns, explained, rng.normal(0, OWN, TOTAL), kind == "misleading")

    def logits(self, step: int) -> Floats:
        """Return the logits at a step, but for what the policy has learned."""
        sign = -1.0 if self.turns and step >= STEPS // 2 else 1.0
        return LEVEL + sign * self.explained + self.own


@dataclass
class Oracle(Belief):
    """Knows the pass rates; shared by all that may look at them."""

    def __post_init__(self) -> None:
        self.truth = np.full(self.total, 0.5)

    def believe(self, indices: Any) -> tuple[Floats, Floats]:
        """Return the true pass rates."""
        return self.truth[indices], np.full(len(self.truth[indices]), 1e6)

    def learn(self, indices: Any, correct: Any, drawn: Any) -> None:
        """Do nothing."""


Make = Callable[[Prompts], Belief]
BELIEFS: dict[str, Make] = {
    "batch's mean": lambda prompts: Constant(TOTAL),
    "no features": lambda prompts: LogitKalman(TOTAL),
    "labels": lambda p: LogitKalman(TOTAL, features=Features({"source": p.columns["source"]})),
    "features": lambda p: LogitKalman(TOTAL, features=Features(p.columns)),
    "oracle": lambda prompts: Oracle(TOTAL),
}


@dataclass(frozen=True)
class Run:
    """What a run did: levels gained after each step, and its first visits."""

    gained: Floats
    visits: Floats

    def tokens_until(self, level: float) -> float:
        """Return the share of the run after which a level was gained."""
        steps = np.arange(STEPS + 1) / STEPS
        if self.gained[-1] >= level:
            return float(np.interp(level, self.gained, steps))
        return float(level / self.gained[-1])

    @property
    def losses(self) -> Floats:
        """The log loss of each step, shape (STEPS,)."""
        step, expected, correct = self.visits.T
        loss = -np.where(correct == 1, np.log(expected), np.log1p(-expected))
        return np.bincount(step.astype(int), loss) / BATCH


def worst_part(runs: Sequence[Run], rng: np.random.Generator) -> str:
    """Return the largest gap of ten parts of all visits, and what it is by chance, in points."""
    visits = np.concatenate([each.visits for each in runs])
    _, expected, correct = visits[visits[:, 0] >= BURN_IN].T
    parts = np.array_split(np.argsort(expected), 10)

    def gap(hits: Floats) -> float:
        return 100 * max(abs(expected[part].mean() - hits[part].mean()) for part in parts)

    chance = np.mean([gap(rng.random(len(expected)) < expected) for _ in range(100)])
    return f"{gap(correct):.1f} ({chance:.1f})"


def run(prompts: Prompts, belief: Belief, by_worth: bool, seed: int) -> Run:
    """Let a belief live through a run, and the policy learn from it."""
    kind = rw.Worth if by_worth else rw.Uniform
    sampler = kind(range(TOTAL), BATCH, seed, belief=belief)
    rng = np.random.default_rng((seed, 1))
    drawn: set[Any] = set()
    level, gained, visits = 0.0, [0.0], []
    for step in range(STEPS):
        pass_rates = 1 / (1 + np.exp(-prompts.logits(step) - level))
        if isinstance(belief, Oracle):
            belief.truth = pass_rates
        keys = np.array(sampler.ask(exclude=drawn))
        drawn |= set(keys.tolist())
        p, b = pass_rates[keys], belief.mean(keys).clip(1e-3, 1 - 1e-3)
        correct = (rng.random(BATCH) < p).astype(np.int64)
        visits += list(zip([step] * BATCH, b, correct, strict=True))
        baseline = np.full(BATCH, correct.mean()) if isinstance(belief, Constant) else b
        signal = (p * (1 - p)).sum() ** 2 / (p * (1 - p) + (p - baseline) ** 2).sum()
        level += GAIN * signal / (BATCH / 4)
        gained.append(level)
        sampler.tell(keys.tolist(), correct, np.ones(BATCH, dtype=np.int64))
    return Run(np.array(gained), np.array(visits))


def of_seed(kind: str, seed: int) -> tuple[dict[str, dict[str, float]], dict[str, Run]]:
    """Return the figures of each belief on a set of one kind, and its runs of uniform choice."""
    prompts = Prompts.make(kind, np.random.default_rng(seed))
    uniform = {name: run(prompts, make(prompts), False, seed) for name, make in BELIEFS.items()}
    target = uniform["batch's mean"].gained[-1]
    figures = {}
    for name, make in BELIEFS.items():
        chosen = run(prompts, make(prompts), name != "batch's mean", seed)
        losses = uniform[name].losses
        figures[name] = {
            "tokens": chosen.tokens_until(target),
            "loss": float(losses[BURN_IN:].mean()),
        }
        if prompts.turns:  # until the mean of four steps is no worse than without features
            worse = (losses - uniform["no features"].losses)[STEPS // 2 :]
            mean_of_4 = np.convolve(worse, np.full(4, 0.25), "valid")
            figures[name]["recovered"] = float(np.argmax([*(mean_of_4 < 0.02), True]))
    return figures, uniform


def main() -> None:
    """Print a table for each kind of columns, and one line of JSON."""
    given = arguments(__doc__, "two seeds", seeds=8).parse_args()
    results: dict[str, Figure] = {}
    rng = np.random.default_rng(0)
    for kind in KINDS:
        found = [of_seed(kind, seed) for seed in range(2 if given.quick else given.seeds)]
        seeds, runs = [figures for figures, _ in found], [uniform for _, uniform in found]
        rows = []
        for name in seeds[0]:
            cells = []
            for figure in ("tokens", "loss", "recovered"):
                if figure not in seeds[0][name]:
                    cells.append("")
                    continue
                mean = over_seeds(each[name][figure] for each in seeds)
                results[f"{kind}, {name}, {figure}"] = mean
                cells.append(shown(mean))
            if name in runs[0] and kind != "misleading":
                cells.append(worst_part([each[name] for each in runs], rng))
            rows.append((name, *cells))
        print_table(kind, ("belief", "tokens", "log loss", "recovered", "off"), rows)
    print_line(results)


if __name__ == "__main__":
    main()
