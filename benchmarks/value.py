"""What a token buys: tokens and seconds until a model is as good as GRPO's after many tokens.

Trains the built-in model on running sums until `--tokens` response tokens are drawn, and evaluates
it on 256 held-out problems sixteen times on the way. The target is the mean held-out avg@4 of GRPO
after all tokens, for the best of its group sizes. For each method and seed, the tokens at which a
non-decreasing fit of its curve reaches the target are divided by GRPO's `--tokens`; likewise for
seconds of sampling and learning. A run that never reaches it counts as reaching it at its end.
Every method draws 256 responses a step and trains at its best of three learning rates and of one,
two or four updates a step, chosen at a third of the tokens on seeds that are not reported.
Intervals are 95 %, by Student's t over seeds. Results are kept in `--results`, a line a run, and
runs that are there already are not repeated. Each worker computes on its share of the cores; for
seconds that mean something, leave the machine to the benchmark.

    python benchmarks/value.py [--quick] [--tokens N] [--seeds N] [--workers N] [--methods A;B]
"""

import argparse
import itertools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mixed_pools import shown
from problem_sets import PROBLEM_SETS, data_settings
from prompt_choice import MOST_STEPS, Budget, Record, over_seeds, run_missing
from rich.console import Console
from rich.table import Table
from scipy.optimize import isotonic_regression

DRAWS = 256
"""Of a step, whatever the method."""


def grpo(samples: int) -> Record:
    """GRPO with groups of `samples`."""
    return {
        "exit": {"type": "fixed_count", "samples": samples},
        "prompts": {"batch_size": DRAWS // samples},
    }


def belief(samples: int = 1, cap: float = 5.0, **prompts: str) -> Record:
    """Responses that are compared with a belief, for prompts chosen by worth."""
    return {
        "exit": {"type": "fixed_count", "samples": samples},
        "prompts": {"type": "worth", "batch_size": DRAWS // samples} | prompts,
        "advantage": {"baseline": "belief"},
        "learner": {"response_cap": cap},
    }


CAPPED: Record = {"learner": {"response_cap": 5.0}}
METHODS: dict[str, Record] = {
    "GRPO, n = 2": grpo(2),
    "GRPO, n = 4": grpo(4),
    "GRPO, n = 8": grpo(8),
    "capped GRPO, n = 4": grpo(4) | CAPPED,
    "refill (DAPO), n = 4": grpo(4) | {"group": {"unresolved": "refill"}},
    "posterior (MoPPS), n = 4": grpo(4) | {"prompts": {"type": "posterior", "batch_size": 64}},
    "belief, n = 1": belief(),
    "belief, n = 2": belief(2),
    "belief, n = 4": belief(4),
    "belief, n = 1, uniform choice": belief(type="uniform"),
    "belief, n = 1, no cap": belief(cap=0.0),
}
RATES = (1.4e-4, 2e-4, 2.8e-4)
UPDATES = (1, 2, 4)
CHOOSING_SEEDS = (100, 101)
EVALUATIONS = 16


class Curve(Budget):
    """Ends a run once its tokens are spent; asks for an evaluation every so many of them."""

    def __init__(self, tokens: int, evaluations: int) -> None:
        super().__init__(tokens)
        self.spent, self.seconds, self.next = 0, 0.0, tokens / evaluations
        self.points: list[list[float]] = []
        self._every, self.evaluate = tokens / evaluations, lambda: 0.0

    def on_step(self, metrics: Record) -> None:
        """Count what the step cost, and evaluate if it is due."""
        super().on_step(metrics)
        if "tokens" not in metrics:
            return
        self.spent += metrics["tokens"]
        self.seconds += metrics["seconds"]["sampling"] + metrics["seconds"]["learning"]
        if self.spent >= self.next or self.stop_requested:
            self.next += self._every
            self.points.append([self.spent, self.seconds, self.evaluate()])


def train_once(
    folder: str, problems: str, method: str, rate: float, updates: int, seed: int, tokens: int
) -> Record:
    """Train with one method, in a process of its own; returns its curve."""
    logging.disable(logging.WARNING)
    from rollwise.config import TrainConfig
    from rollwise.config.base import merge
    from rollwise.records import RunFolder
    from rollwise.training.loop import evaluate, train
    from rollwise.training.run import start_run

    settings = {
        "seed": seed,
        "steps": MOST_STEPS,
        "data": data_settings(problems, Path(folder)),
        "learner": {"learning_rate": rate, "mini_batches": updates, "old_logprobs": "engine"},
        "evaluation": {"every": 0, "samples": 4},
        "checkpoint": {"every": 0},
    }
    curve = Curve(tokens, 1 if seed in CHOOSING_SEEDS else EVALUATIONS)
    with tempfile.TemporaryDirectory() as temporary:
        config = TrainConfig(**merge(settings, METHODS[method]))
        run = start_run(config, RunFolder(Path(temporary) / "run"))
        curve.evaluate = lambda: float(evaluate(run).as_json()["avg@4"]["value"])
        train(run, curve)
    return {"points": curve.points}


def cost_of_target(points: list[list[float]], target: float, column: int) -> float:
    """Tokens (column 0) or seconds (1) at which the fitted curve reaches the target."""
    curve = np.array(points)
    fitted = isotonic_regression(curve[:, 2]).x
    reached = np.flatnonzero(fitted >= target)
    if not reached.size:
        return float(curve[-1, column])
    last = reached[0]
    if last == 0 or fitted[last] == fitted[last - 1]:
        return float(curve[last, column])
    share = (target - fitted[last - 1]) / (fitted[last] - fitted[last - 1])
    return float(curve[last - 1, column] + share * (curve[last, column] - curve[last - 1, column]))


Shape = tuple[float, int]
"""A learning rate, and the updates of a step."""


def best_shapes(
    train: Callable[..., dict[Any, Record]],
    methods: list[str],
    sets: list[str],
    shapes: list[Shape],
    tokens: int,
) -> dict[tuple[str, str], Shape]:
    """Choose each method's shape by its mean avg@4 at a third of the tokens."""
    pairs = list(itertools.product(sets, methods))
    if len(shapes) == 1:
        return dict.fromkeys(pairs, shapes[0])
    seeds = CHOOSING_SEEDS
    found = train(
        [(*pair, *shape, seed, tokens // 3) for pair in pairs for shape in shapes for seed in seeds]
    )

    def score(pair: tuple[str, str], shape: Shape) -> float:
        ends = [found[*pair, *shape, s, tokens // 3]["points"][-1][2] for s in seeds]
        return float(np.mean(ends))

    return {pair: max(shapes, key=lambda shape, p=pair: score(p, shape)) for pair in pairs}


def main() -> None:
    """Choose learning rates and updates, train what is missing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="30,000 tokens, one seed, two methods")
    parser.add_argument("--tokens", type=int, default=800_000)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument("--methods", help="some of them, separated by ;")
    parser.add_argument("--problems", help=f"some of {'; '.join(PROBLEM_SETS)}, separated by ;")
    parser.add_argument("--rates", help="learning rates to choose from, separated by ;")
    parser.add_argument("--updates", help="updates of a step to choose from, separated by ;")
    parser.add_argument("--results", type=Path, default=Path("value.jsonl"))
    given = parser.parse_args()
    methods = given.methods.split(";") if given.methods else list(METHODS)
    sets = given.problems.split(";") if given.problems else list(PROBLEM_SETS)
    rates = [float(rate) for rate in given.rates.split(";")] if given.rates else list(RATES)
    updates = [int(n) for n in given.updates.split(";")] if given.updates else list(UPDATES)
    tokens, seeds = given.tokens, list(range(given.seeds))
    if given.quick:
        methods, sets, tokens = ["GRPO, n = 4", "belief, n = 1"], ["7 to 10 terms"], 30_000
        seeds, rates, updates = [0], [2e-4], [4]
    share = max(1, (os.cpu_count() or 1) // given.workers)
    os.environ.setdefault("OMP_NUM_THREADS", str(share))
    files = given.results.with_suffix(".problems")
    for problems in sets:
        data_settings(problems, files)
    run = partial(train_once, str(files.resolve()))

    def train(jobs: list[tuple[Any, ...]]) -> dict[Any, Record]:
        return run_missing(run, jobs, given.results, given.workers)

    shapes = best_shapes(train, methods, sets, list(itertools.product(rates, updates)), tokens)
    pairs = list(itertools.product(sets, methods))
    found = train([(*p, *shapes[p], seed, tokens) for seed in seeds for p in pairs])
    curves = {(*p, n): found[*p, *shapes[p], n, tokens]["points"] for p in pairs for n in seeds}
    figures: dict[str, Mapping[str, float]] = {}
    for problems in sets:
        figures |= compare(problems, methods, seeds, curves, shapes)
    print(json.dumps(figures))


def compare(
    problems: str,
    methods: list[str],
    seeds: list[int],
    curves: Mapping[tuple[str, str, int], list[list[float]]],
    shapes: Mapping[tuple[str, str], Shape],
) -> dict[str, Mapping[str, float]]:
    """Print the table of one problem set; returns its figures."""

    def ends(method: str) -> list[float]:
        return [curves[problems, method, seed][-1][2] for seed in seeds]

    plain = [m for m in methods if m.startswith("GRPO")]
    rival = max(plain, key=lambda method: float(np.mean(ends(method))))
    target = float(np.mean(ends(rival)))
    of_rival = [curves[problems, rival, seed][-1] for seed in seeds]
    title = f"{problems}, to {target:.3f}, where {rival} ends, {len(seeds)} seeds"
    table = Table(title=title)
    for column in ("method", "rate", "updates", "avg@4 at the end", "worst", "tokens", "seconds"):
        table.add_column(column, justify="left" if column == "method" else "right")
    figures: dict[str, Mapping[str, float]] = {}
    for method in methods:
        costs = [
            over_seeds(
                cost_of_target(curves[problems, method, seed], target, column) / whole[column]
                for seed, whole in zip(seeds, of_rival, strict=True)
            )
            for column in (0, 1)
        ]
        accuracy, name = over_seeds(ends(method)), f"{problems}/{method}"
        figures[f"{name}/avg@4"] = accuracy
        figures[f"{name}/tokens_ratio"], figures[f"{name}/seconds_ratio"] = costs
        cells = [shown(accuracy, 3), f"{min(ends(method)):.3f}", *(shown(c, 2) for c in costs)]
        rate, updates = shapes[problems, method]
        table.add_row(method, f"{rate:.1e}", str(updates), *cells)
    Console().print(table)
    return figures


if __name__ == "__main__":
    main()
