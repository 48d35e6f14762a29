"""Time of verl's asynchronous trainers beside its synchronous one, at equal draws, on the CPU.

Each run takes as many steps of as many prompts with as many responses (`fixed_count`), with the
plug-in and the tests' scaffolding, which serves the policy in a process of its own. Time is that
between the metrics of the second step and those of the last, over the steps between them: it has no
start. Processor time is that of all processes of the run, between the same moments. The trainers
take turns, with one seed a round; intervals are 95 %, by Student's t over rounds.

    python benchmarks/speed/verl_asynchronous.py [--quick] [--rounds 3] [--steps 10]

It needs the extra `verl`.
"""

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen

import numpy as np
import psutil

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "tests/integrations/verl"))

from measuring import arguments, over_seeds, print_line, print_table, shown
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
    "method": "grpo",
    "prompts.batch_size": 32,
    "learner.mini_batches": 2,
    "records.prompts_per_step": 0,
    "checkpoint.every": 0,
}


def main() -> None:
    """Run, compare, print."""
    given = arguments(__doc__, "one round of 4 steps", rounds=3, steps=10).parse_args()
    rounds, steps = (1, 4) if given.quick else (given.rounds, given.steps)
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
    columns = ("seconds", "of the synchronous one", "processor seconds", "of the synchronous one")
    rows, figures = [], {}
    for mode, measured in found.items():
        shares = measured[:, :2] / found["sync"][:, :2]
        row = {
            "seconds": over_seeds(measured[:, 0]),
            "share": over_seeds(shares[:, 0]),
            "processor_seconds": over_seeds(measured[:, 1]),
            "processor_share": over_seeds(shares[:, 1]),
            "steps_off_policy": {"value": float(measured[:, 2].mean())},
        }
        rows.append((mode, *(shown(figure, ".2f") for figure in row.values())))
        figures |= {f"{mode}_{name}": figure for name, figure in row.items()}
    title = "A step of 128 draws: time, and updates that the weights lack"
    print_table(title, ("trainer", *columns, "updates lacking"), rows)
    print_line(figures)


if __name__ == "__main__":
    main()
