"""Which prompt sampler is worth its tokens: held-out avg@8 after equal tokens, over seeds.

Trains the built-in model on running sums until `--tokens` response tokens are drawn, once for each
prompt sampler, response sampling, problem set and seed, and evaluates it on 256 held-out problems.
Each prompt sampler stands with GRPO (4 draws a prompt, 64 prompts a step) and with Reinforce-Ada
(`Balanced(2, 2)`, 16 prompts a step, so that a step takes about as many draws as GRPO's). Intervals
are 95 %, by Student's t over seeds; differences are to uniform choice with GRPO of the same seed.
A run takes one to two minutes on one core; results are kept in `--results`, a line a run, and runs
that are there already are not repeated.

    python benchmarks/prompt_choice.py [--quick] [--tokens N] [--seeds N] [--workers N]
"""

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats

PROBLEM_SETS = {"2 to 10 terms": {}, "7 to 10 terms": {"min_terms": 7}}
GRPO = {"exit": {"type": "fixed_count"}}
ADA = {"exit": {"type": "balanced"}, "prompts": {"batch_size": 16}}
RESPONSE_SAMPLINGS = {"GRPO": GRPO, "Balanced": ADA}
PROMPT_SAMPLERS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "curriculum": {"prompts": {"type": "curriculum"}},
    "prioritized": {"prompts": {"type": "prioritized"}},
    "CDAS, paper": {"prompts": {"type": "cdas"}},
    "CDAS, calibrated": {"prompts": {"type": "cdas", "form": "calibrated"}},
    "posterior": {"prompts": {"type": "posterior"}},
    "refill": {"group": {"unresolved": "refill"}},
}
MOST_STEPS = 100_000
Record = dict[str, Any]


class Budget:
    """Ends a run once its response tokens are spent, and keeps its metrics."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens
        self.stop_requested = False
        self.metrics: list[Record] = []

    def on_step(self, metrics: Record) -> None:
        """Count the step's tokens."""
        self.metrics.append(metrics)
        self.left -= metrics.get("tokens", 0)
        self.stop_requested = self.left <= 0


def train_once(problems: str, responses: str, prompts: str, seed: int, tokens: int) -> Record:
    """Train with one combination, in a process of its own; returns its figures."""
    logging.disable(logging.WARNING)
    from rollwise.config import TrainConfig
    from rollwise.config.base import merge
    from rollwise.records import RunFolder
    from rollwise.training.loop import evaluate, train
    from rollwise.training.run import start_run

    settings = {
        "seed": seed,
        "steps": MOST_STEPS,
        "data": PROBLEM_SETS[problems],
        "evaluation": {"every": 0},
        "checkpoint": {"every": 0},
    }
    for given in (RESPONSE_SAMPLINGS[responses], PROMPT_SAMPLERS[prompts]):
        settings = merge(settings, given)
    budget = Budget(tokens)
    with tempfile.TemporaryDirectory() as folder:
        run = start_run(TrainConfig(**settings), RunFolder(Path(folder) / "run"))
        train(run, budget)
        after = evaluate(run).as_json()["avg@8"]["value"]
    before, *steps = budget.metrics
    prompts_of = [step["prompts"] for step in steps]
    return {
        "before": before["heldout"]["avg@8"]["value"],
        "after": after,
        "zero_variance": float(
            np.average([s["zero_variance_first"] for s in steps], weights=prompts_of)
        ),
        "zero_variance_after": float(
            np.average([s["zero_variance_after"] for s in steps], weights=prompts_of)
        ),
        "steps": len(steps),
        "prompts": sum(prompts_of),
        "draws": sum(step["draws"] for step in steps),
        "tokens": sum(step["tokens"] for step in steps),
        "seconds": steps[-1]["elapsed"] - before["elapsed"],
    }


def run_missing(
    run: Callable[..., Record], jobs: Iterable[tuple[Any, ...]], results: Path, workers: int
) -> dict[Any, Record]:
    """Call `run` on the jobs not in `results` yet, adding a line a run; returns those of all."""
    jobs = list(jobs)
    known: dict[Any, Record] = {}
    if results.exists():
        lines = map(json.loads, results.read_text().splitlines())
        known = {tuple(line["job"]): line["result"] for line in lines}
    missing = [job for job in jobs if job not in known]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        futures = {pool.submit(run, *job): job for job in missing}
        done = as_completed(futures)
        for future in track(done, "Training", console=Console(stderr=True), total=len(missing)):
            known[futures[future]] = future.result()
            with results.open("a") as file:
                print(json.dumps({"job": futures[future], "result": future.result()}), file=file)
    return {job: known[job] for job in jobs}


def over_seeds(values: Iterable[float]) -> dict[str, float]:
    """Mean with its 95 % interval, by Student's t."""
    of_seeds = np.array(list(values))
    mean = float(of_seeds.mean())
    if len(of_seeds) < 2:
        return {"value": mean, "low": mean, "high": mean}
    half = stats.t.ppf(0.975, len(of_seeds) - 1) * stats.sem(of_seeds)
    return {"value": mean, "low": float(mean - half), "high": float(mean + half)}


def main() -> None:
    """Train what is missing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="30,000 tokens, one seed, one set")
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument("--results", type=Path, default=Path("prompt_choice.jsonl"))
    arguments = parser.parse_args()
    tokens, seeds, sets = arguments.tokens, range(arguments.seeds), list(PROBLEM_SETS)
    if arguments.quick:
        tokens, seeds, sets = 30_000, range(1), sets[:1]
    arms = list(itertools.product(RESPONSE_SAMPLINGS, PROMPT_SAMPLERS))
    jobs = [(s, *arm, seed, tokens) for seed in seeds for s in sets for arm in arms]
    found = run_missing(train_once, jobs, arguments.results, arguments.workers)

    figures: dict[str, dict[str, float]] = {}
    console = Console()
    for problems in sets:
        table = _table(f"{problems}, {tokens:,} tokens, {len(seeds)} seeds")
        for arm in arms:
            runs = [found[problems, *arm, seed, tokens] for seed in seeds]
            base = [found[problems, "GRPO", "uniform", seed, tokens] for seed in seeds]
            row = {
                "avg@8": over_seeds(run["after"] for run in runs),
                "difference": over_seeds(
                    run["after"] - other["after"] for run, other in zip(runs, base, strict=True)
                ),
                "zero_variance": over_seeds(run["zero_variance"] for run in runs),
                "prompts_seen": over_seeds(run["prompts"] for run in runs),
            }
            figures |= {f"{problems}/{'/'.join(arm)}/{name}": value for name, value in row.items()}
            table.add_row(*arm, *_cells(row))
        console.print(table)
    print(json.dumps(figures))


def _table(title: str) -> Table:
    table = Table(title=title)
    for column in ("responses", "prompts", "avg@8", "difference", "zero variance", "seen"):
        table.add_column(column)
    return table


def _cells(row: Mapping[str, Mapping[str, float]]) -> list[str]:
    signs = {"avg@8": "", "difference": "+", "zero_variance": ""}
    cells = [_shown(row[name], sign) for name, sign in signs.items()]
    return [*cells, f"{row['prompts_seen']['value']:,.0f}"]


def _shown(figure: Mapping[str, float], sign: str) -> str:
    value, low, high = (f"{figure[end]:{sign}.3f}" for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
