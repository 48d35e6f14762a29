"""What the history of a first run is worth to a second one on the same problems.

A first run of `rollwise train` with its defaults draws 0.25 M response tokens from the bimodal set
of the study, with a seed of its own. Then runs of 0.25 M tokens begin from the built-in model
again: from nothing, and with `belief.history`. Beliefs have no features beside. Intervals are 95 %,
by Student's t over seeds; a run takes about a minute of one core. `rollwise compare` trains
them in the folder `--output`; runs that are there already are not repeated.

    python benchmarks/second_run.py [--quick] [--seeds N] [--output DIR]
"""

import argparse
import json
import tempfile
from pathlib import Path

from problem_sets import BIMODAL, settings_of
from rich.console import Console

from rollwise.cli import main as rollwise
from rollwise.commands.compare import compare
from rollwise.config.base import merge
from rollwise.records import flatten

FIRST_SEED = 100
BASE = {"evaluation": {"samples": 4}, "checkpoint": {"every": 0}, "belief": {"features": []}}


def second_runs(folder: Path, tokens: int, seeds: int, workers: int) -> None:
    """Train the first run and those after it, as far as they are missing, and print the table."""
    base = merge(BASE, settings_of(BIMODAL, folder / "problems"))
    first = folder / "first"
    given = flatten(base | {"tokens": tokens, "seed": FIRST_SEED}, ".")
    options = [
        f"--{name}={v if isinstance(v, str) else json.dumps(v)}" for name, v in given.items()
    ]
    if rollwise(["train", *options, "--output", str(first)]):
        raise SystemExit(1)
    methods = {"from nothing": {}, "with history": {"belief": {"history": [str(first)]}}}
    settings = {"base": base, "methods": methods, "tokens": tokens, "seeds": seeds}
    settings |= {"evaluations": 10, "workers": workers}
    compare([settings], folder / "second", resume=False, console=Console())


def main() -> None:
    """Print the table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short runs with two seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="by default a temporary folder")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    given = parser.parse_args()
    tokens, seeds = (20_000, 2) if given.quick else (250_000, given.seeds)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.output or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        second_runs(folder, tokens, seeds, given.workers)
        found = json.loads((folder / "second" / "comparison.json").read_text(encoding="utf-8"))
        methods = found["methods"]
        results = {f"{name}, avg@4": each["accuracy"] for name, each in methods.items()}
        results["tokens"] = methods["with history"]["reached"]["tokens"]["share"]
        print(json.dumps(results))


if __name__ == "__main__":
    main()
