"""Time of verl's asynchronous trainers beside its synchronous one, at equal draws, on the CPU.

Each run takes as many steps of as many prompts with as many responses (`fixed_count`), with the
plug-in and the tests' scaffolding, which serves the policy in a process of its own. Time is that
between the metrics of the second step and those of the last, over the steps between them: it has no
start. Processor time is that of all processes of the run, between the same moments. The trainers
take turns, with one seed a round; intervals are 95 %, by Student's t over rounds.

    python benchmarks/verl_asynchronous.py [--quick] [--rounds 3] [--steps 10]

It needs the extra `verl`.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/integrations/verl"))

from verl_runs import SEPARATE, begin, kill, metrics_of

COLOCATED = """
verl.trainer.v1.trainer_mode = "colocate_async"
verl.trainer.v1.sampler.max_off_policy_threshold = 3
"""
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
}


def main() -> None:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of 4 steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    rounds, steps = (1, 4) if arguments.quick else (arguments.rounds, arguments.steps)
    found: dict[str, list[np.ndarray]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(rounds):
            for mode, verl in MODES.items():
                path = Path(folder) / f"{mode}-{seed}"
                found[mode].append(measure(path, steps, seed, verl))
                print(seed, mode, *found[mode][-1].round(3), flush=True)
    show({mode: np.array(rows) for mode, rows in found.items()})


def measure(path: Path, steps: int, seed: int, verl: str) -> np.ndarray:
    """Run one trainer.

    Returns:
        Of a step after the second: seconds, processor seconds, and by how many updates the weights
        of its responses were too old, on average.
    """
    process = begin(path, SETTINGS | {"steps": steps, "seed": seed}, verl=verl)
    try:
        before = processor_seconds_at(process, path, 2)
        after = processor_seconds_at(process, path, steps)
        process.wait()
    finally:
        kill(process)
    lines = metrics_of(path)
    assert {line["draws"] for line in lines[1:]} == {32 * 4}
    ages = [line.get("steps_off_policy_mean", 0.0) for line in lines[2:]]
    spent = np.array([lines[-1]["elapsed"] - lines[2]["elapsed"], after - before])
    return np.append(spent / (steps - 2), np.mean(ages))


def processor_seconds_at(process: "Popen[bytes]", path: Path, step: int) -> float:
    """Return the processor seconds of a run and all its processes, once `step` is logged."""
    log = path / "metrics.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) <= step:
        if process.poll() is not None:
            said = Path(f"{path}.log").read_text(errors="replace")
            raise SystemExit(f"{said[-3000:]}\nit ended before step {step}")
        time.sleep(0.05)
    total = 0.0
    own = psutil.Process(process.pid)
    for each in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def show(found: dict[str, np.ndarray]) -> None:
    """Print a table, and a line of JSON.

    Args:
        found: Trainer -> the rows of `measure`, one for each round.
    """
    table = Table(title="A step of 128 draws: time, and updates that the weights lack")
    columns = ("seconds", "of the synchronous one", "processor seconds", "of the synchronous one")
    for column in ("trainer", *columns, "updates lacking"):
        table.add_column(column)
    figures = {}
    for mode, rows in found.items():
        shares = rows[:, :2] / found["sync"][:, :2]
        figures[mode] = {
            "seconds": estimate(rows[:, 0]),
            "share": estimate(shares[:, 0]),
            "processor_seconds": estimate(rows[:, 1]),
            "processor_share": estimate(shares[:, 1]),
            "steps_off_policy": {"value": float(rows[:, 2].mean())},
        }
        table.add_row(mode, *(spelt(figure) for figure in figures[mode].values()))
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
