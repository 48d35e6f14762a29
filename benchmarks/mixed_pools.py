"""What a mixed pool costs: streamed draws for chosen prompts against rounds for uniform ones.

Trains the built-in model on running sums of 7 to 10 terms, 64 prompts a step, until `--tokens`
response tokens are drawn, and counts all draws against the pools that hold both a correct and an
incorrect response; then evaluates it on 256 held-out problems. Two rules end a pool: one response
of each kind, or two. Intervals are 95 %, by Student's t over seeds. `rollwise compare` trains
the runs, in the folder `--output`; runs that are there already are not repeated.

    python benchmarks/mixed_pools.py [--quick] [--tokens N] [--seeds N] [--workers N]
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from prompt_choice import PROMPT_SAMPLERS, Record, over_seeds, train_methods
from rich.console import Console
from rich.table import Table

from rollwise.commands.compare import file_name
from rollwise.config.base import merge

PROBLEMS = "7 to 10 terms"
ONE = {"type": "balanced", "positives": 1, "negatives": 1}
TWO = {"type": "balanced"}
GRPO = {"exit": {"type": "fixed_count"}}
CERTAIN = {"schedule": {"type": "streamed", "speculation": 1.0}}
LINEAR = {"group": {"strategy": "all"}, "advantage": {"objective": "linear"}}
PLAIN = {"advantage": {"objective": "linear", "scale_by_std": False}}


def giving_up(rule: Record) -> Record:
    """Streamed, as few draws as can be, and prompts given up that are unlikely to meet the rule."""
    return {"exit": {**rule, "give_up_below": 0.2}, **CERTAIN}


ARMS: dict[str, tuple[Record, str]] = {
    "one of each: rounds, uniform": ({"exit": ONE}, "uniform"),
    "one of each: streamed, posterior, giving up": ({**giving_up(ONE), **LINEAR}, "posterior"),
    "two of each: rounds, uniform": ({"exit": TWO}, "uniform"),
    "two of each: streamed, uniform": ({"exit": TWO, **CERTAIN}, "uniform"),
    "two of each: streamed, posterior": ({"exit": TWO, **CERTAIN}, "posterior"),
    "two of each: streamed, posterior, giving up": (giving_up(TWO), "posterior"),
    "GRPO, uniform": (GRPO, "uniform"),
    "GRPO, linear, uniform": ({**GRPO, **PLAIN}, "uniform"),
    "GRPO, linear, posterior": ({**GRPO, **PLAIN}, "posterior"),
}
RIVALS = {
    "one": ("one of each: rounds, uniform", "one of each: streamed, posterior, giving up"),
    "two": ("two of each: rounds, uniform", "two of each: streamed, posterior, giving up"),
}


def draws_per_mixed_pool(result: Record) -> float:
    """All draws of a run, surplus included, for each pool with both kinds of responses."""
    return float(result["draws"] / (result["prompts"] * (1 - result["zero_variance_after"])))


def main() -> None:
    """Train what is missing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60,000 tokens, one seed, two arms")
    parser.add_argument("--tokens", type=int, default=800_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--output", type=Path, default=Path("runs/mixed_pools"))
    arguments = parser.parse_args()
    tokens, seeds, arms = arguments.tokens, range(arguments.seeds), list(ARMS)
    if arguments.quick:
        tokens, seeds, arms = 60_000, range(1), list(RIVALS["one"])
    methods = {arm: merge(ARMS[arm][0], PROMPT_SAMPLERS[ARMS[arm][1]]) for arm in arms}
    folder = arguments.output / file_name(f"{tokens} tokens")
    found = train_methods(methods, PROBLEMS, tokens, len(seeds), folder, arguments.workers)

    costs = {
        arm: np.array([draws_per_mixed_pool(found[arm, seed]) for seed in seeds]) for arm in arms
    }
    table = Table(title=f"{PROBLEMS}, {tokens:,} tokens, {len(seeds)} seeds")
    for column in ("arm", "draws a mixed pool", "avg@8", "steps"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm in arms:
        of_arm = [found[arm, seed] for seed in seeds]
        accuracy = over_seeds(result["after"] for result in of_arm)
        steps = over_seeds(result["steps"] for result in of_arm)["value"]
        table.add_row(arm, shown(over_seeds(costs[arm]), 1), shown(accuracy, 3), f"{steps:.0f}")
    Console().print(table)
    figures = {
        f"mixed_pool_draws_ratio_{rule}": over_seeds(costs[ours] / costs[rival])
        for rule, (rival, ours) in RIVALS.items()
        if ours in costs
    }
    print(json.dumps(figures))


def shown(figure: Mapping[str, float], digits: int) -> str:
    """Write a figure with its interval."""
    value, low, high = (f"{figure[end]:.{digits}f}" for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
