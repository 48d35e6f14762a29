"""Whether `rollwise plan` predicts what steps of `rollwise train` cost.

Pass rates of running sums are measured by `rollwise prepare` with the built-in model. Each method
is planned by them, with lengths fitted to the same responses, and then trained for real with a
learning rate that changes nothing. The table shows draws, tokens and zero-variance groups a step,
predicted over real; 1 is perfect.

    OMP_NUM_THREADS=1 python benchmarks/plan.py [--quick]
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from rollwise.commands.prepare import prepare
from rollwise.commands.train import train
from rollwise.config import make_config
from rollwise.engines.simulated import Lengths
from rollwise.evaluation.lengths import fit_lengths
from rollwise.evaluation.planning import Prices, simulate_steps, summarise
from rollwise.records import RunFolder
from rollwise.tasks.pass_rates import RatedPrompt, read_pass_rates, resample_pass_rates

METHODS: dict[str, dict[str, Any]] = {
    "GRPO": {"exit": {"type": "fixed_count", "samples": 8}},
    "Reinforce-Ada": {"exit": {"type": "balanced"}},
    "streamed": {"exit": {"type": "balanced"}, "schedule": {"type": "streamed"}},
    "belief": {
        "exit": {"type": "fixed_count", "samples": 1},
        "prompts": {"type": "worth"},
        "advantage": {"baseline": "belief"},
    },
}
FIGURES = ("draws", "tokens", "zero_variance_first", "zero_variance_after")
PLANNED_STEPS = 16


def main() -> None:
    """Prepare, plan, train, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer problems and steps")
    arguments = parser.parse_args()
    problems, steps = (128, 2) if arguments.quick else (512, 8)

    quiet, figures = Console(quiet=True), {}
    table = Table(title=f"Predicted over real, {steps} steps of {problems // 4} prompts")
    for name in ("", *FIGURES):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "prepared"
        settings = {"data": {"problems": problems}, "selection": {"range": "all"}}
        prepare([settings], data, False, quiet)
        prompts = resample_pass_rates(
            read_pass_rates(data / "prepared.parquet"), np.random.default_rng(0)
        )
        lengths = lengths_of(data)
        for name, method in METHODS.items():
            given = settings_of(method, data, problems // 4, steps)
            ratios = compare(given, prompts, lengths, Path(folder) / name, steps, quiet)
            table.add_row(name, *(f"{ratios[figure]:.3f}" for figure in FIGURES))
            figures |= {f"{name}_{figure}": {"value": ratios[figure]} for figure in FIGURES}
    Console().print(table)
    print(json.dumps(figures))


def settings_of(method: dict[str, Any], data: Path, prompts: int, steps: int) -> dict[str, Any]:
    """Lay out a short run that stays as it is."""
    return {
        **method,
        "prompts": {**method.get("prompts", {}), "batch_size": prompts},
        "data": {"train": str(data / "prepared.parquet"), "heldout": "running-sums"},
        "grading": {"type": "exact"},
        "learner": {"learning_rate": 1e-15},
        "evaluation": {"every": 0, "problems": 2, "samples": 1},
        "steps": steps,
    }


def lengths_of(data: Path) -> Lengths:
    """Fit lengths to the responses of a preparation."""
    rows = pq.read_table(data / "responses").to_pylist()
    return fit_lengths(
        [row["tokens"] for row in rows],
        [row["truncated"] for row in rows],
        [row["reward"] > 0 for row in rows],
    )


def compare(
    given: dict[str, Any],
    prompts: list[RatedPrompt],
    lengths: Lengths,
    folder: Path,
    steps: int,
    quiet: Console,
) -> dict[str, float]:
    """Return each figure of a step, predicted over real.

    The same number of steps is predicted, for beliefs learn from the first on; several times, with
    other seeds, so that the prediction has little error of its own.
    """
    train([given], folder, False, quiet)
    real = [line for line in RunFolder(folder).read_metrics() if line["step"] > 0]
    config = make_config(given)
    cut = Lengths(
        lengths.median, lengths.sigma, config.engine.max_new_tokens, lengths.incorrect_factor
    )
    planned = []
    for seed in range(PLANNED_STEPS // steps):
        config = make_config({**given, "seed": seed})
        planned += simulate_steps(config, prompts, Prices(cut, config.engine.batch_size, 1), steps)
    plan = summarise(planned)
    return {
        figure: plan[figure].value / max(float(np.mean([line[figure] for line in real])), 1e-9)
        for figure in FIGURES
    }


if __name__ == "__main__":
    main()
