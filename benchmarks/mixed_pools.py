"""What a mixed pool costs: streamed draws for chosen prompts against rounds for uniform ones.

Trains the built-in model on running sums of 7 to 10 terms, 64 prompts a step, until `--tokens`
response tokens are drawn, and counts all draws against the pools that hold both a correct and an
incorrect response; then evaluates it on 256 held-out problems. Intervals are 95 %, by Student's t
over seeds. Results are kept in `--results`, a line a run, and runs that are there already are not
repeated.

    python benchmarks/mixed_pools.py [--quick] [--tokens N] [--seeds N] [--workers N]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import prompt_choice
from prompt_choice import Record, over_seeds, run_missing
from rich.console import Console
from rich.table import Table

PROBLEMS = "7 to 10 terms"
BALANCED = {"type": "balanced"}
CERTAIN = {"type": "streamed", "speculation": 1.0}
GIVING_UP = {"exit": {**BALANCED, "give_up_below": 0.2}, "schedule": CERTAIN}
ARMS: dict[str, tuple[dict[str, Any], str]] = {
    "rounds, uniform": ({"exit": BALANCED}, "uniform"),
    "streamed, uniform": ({"exit": BALANCED, "schedule": CERTAIN}, "uniform"),
    "streamed, posterior": ({"exit": BALANCED, "schedule": CERTAIN}, "posterior"),
    "streamed, posterior, giving up below 0.2": (GIVING_UP, "posterior"),
    "the same, linear advantages of all draws": (
        {**GIVING_UP, "group": {"strategy": "all"}, "advantage": {"objective": "linear"}},
        "posterior",
    ),
    "GRPO, uniform": ({"exit": {"type": "fixed_count"}}, "uniform"),
}
RIVAL, OURS = "rounds, uniform", "streamed, posterior, giving up below 0.2"
# Runs go to processes of their own, which import this file and so know the arms too.
prompt_choice.RESPONSE_SAMPLINGS |= {name: settings for name, (settings, _) in ARMS.items()}


def train_arm(arm: str, seed: int, tokens: int) -> Record:
    """Train with one arm, in a process of its own."""
    return prompt_choice.train_once(PROBLEMS, arm, ARMS[arm][1], seed, tokens)


def draws_per_mixed_pool(result: Record) -> float:
    """All draws of a run, surplus included, for each pool with both kinds of responses."""
    return float(result["draws"] / (result["prompts"] * (1 - result["uniform_after"])))


def main() -> None:
    """Train what is missing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60,000 tokens, one seed, two arms")
    parser.add_argument("--tokens", type=int, default=800_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("mixed_pools.jsonl"))
    arguments = parser.parse_args()
    tokens, seeds, arms = arguments.tokens, range(arguments.seeds), list(ARMS)
    if arguments.quick:
        tokens, seeds, arms = 60_000, range(1), [RIVAL, OURS]
    jobs = [(arm, seed, tokens) for seed in seeds for arm in arms]
    found = run_missing(train_arm, jobs, arguments.results, arguments.workers)

    table = Table(title=f"{PROBLEMS}, {tokens:,} tokens, {len(seeds)} seeds")
    for column in ("arm", "draws a mixed pool", "ratio", "avg@8", "steps"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    ratios = {}
    for arm in arms:
        of_arm = [found[arm, seed, tokens] for seed in seeds]
        costs = [draws_per_mixed_pool(result) for result in of_arm]
        rivals = [draws_per_mixed_pool(found[RIVAL, seed, tokens]) for seed in seeds]
        ratios[arm] = over_seeds(cost / rival for cost, rival in zip(costs, rivals, strict=True))
        table.add_row(
            arm,
            f"{over_seeds(costs)['value']:.1f}",
            "{value:.2f} [{low:.2f}, {high:.2f}]".format(**ratios[arm]),
            "{value:.3f} [{low:.3f}, {high:.3f}]".format(
                **over_seeds(result["after"] for result in of_arm)
            ),
            f"{over_seeds(result['steps'] for result in of_arm)['value']:.0f}",
        )
    Console().print(table)
    print(json.dumps({"mixed_pool_draws_ratio": ratios[OURS]}))


if __name__ == "__main__":
    main()
