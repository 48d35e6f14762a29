"""Time of verl's asynchronous trainers beside its synchronous one, at equal draws, on the CPU.

Each run takes as many steps of as many prompts with as many responses (`fixed_count`), with the
plug-in and the tests' scaffolding, which serves the policy in a process of its own. Time is that
between the metrics of the second step and those of the last, over the steps between them: it has no
start. The trainers take turns, with one seed a round; intervals are 95 %, by Student's t over
rounds.

    python benchmarks/verl_asynchronous.py [--quick] [--rounds 3]     (needs the extra `verl`)
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/integrations/verl"))

from test_verl_asynchronous_end_to_end import COLOCATED, SEPARATE
from test_verl_end_to_end import metrics_of, run

MODES = {"sync": "", "colocate_async": COLOCATED, "separate_async": SEPARATE}
SETTINGS = {
    "data.problems": 512,
    "data.min_terms": 7,
    "data.max_terms": 10,
    "exit.type": "fixed_count",
    "exit.samples": 4,
    "prompts.batch_size": 32,
    "learner.mini_batches": 2,
    "records.prompts_per_step": 0,
    "checkpoint.every": 0,
    "step.max_steps_off_policy": 2,
}


def main() -> None:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of 4 steps")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds, steps = (1, 4) if arguments.quick else (arguments.rounds, 10)
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    ages: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(rounds):
            for mode, verl in MODES.items():
                path = Path(folder) / f"{mode}-{seed}"
                run(path, SETTINGS | {"steps": steps, "seed": seed}, verl=verl)
                lines = metrics_of(path)
                assert {line["draws"] for line in lines[1:]} == {32 * 4}
                seconds[mode].append((lines[-1]["elapsed"] - lines[2]["elapsed"]) / (steps - 2))
                found = [line.get("steps_off_policy_mean", 0.0) for line in lines[2:]]
                ages[mode].append(float(np.mean(found)))
    show(seconds, ages)


def show(seconds: dict[str, list[float]], ages: dict[str, list[float]]) -> None:
    """Print a table, and a line of JSON."""
    table = Table(title="Seconds a step of 128 draws, and updates that their weights lack")
    for column in ("trainer", "seconds", "of the synchronous one", "updates lacking"):
        table.add_column(column)
    figures = {}
    for mode, own in seconds.items():
        share = np.array(own) / np.array(seconds["sync"])
        figures[mode] = {
            "seconds": estimate(np.array(own)),
            "share": estimate(share),
            "steps_off_policy": float(np.mean(ages[mode])),
        }
        cells = [spelt(figures[mode][name]) for name in ("seconds", "share")]
        table.add_row(mode, *cells, f"{figures[mode]['steps_off_policy']:.2f}")
    Console().print(table)
    print(json.dumps(figures))


def estimate(values: np.ndarray) -> dict[str, float]:
    """Average over rounds, with its interval; without one for a single round."""
    mean = float(values.mean())
    if len(values) < 2:
        return {"value": mean}
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return {"value": mean, "low": mean - half, "high": mean + half}


def spelt(figure: dict[str, float]) -> str:
    """Write a figure with its interval."""
    interval = f" [{figure['low']:.2f}, {figure['high']:.2f}]" if "low" in figure else ""
    return f"{figure['value']:.2f}{interval}"


if __name__ == "__main__":
    main()
