"""What adaptive sampling costs in TRL: TRL's `GRPOTrainer` beside ours, on running sums, on a CPU.

(a) Overhead: both draw four responses to each of 64 prompts and compute the same advantages; the
learning rate is 0, so that the work stays the same. Ours runs with TRL's own generation, which
leaves the bookkeeping as the difference, and as it comes, with rollwise's engine. Figures are
processor seconds of a step, the first of each run left out, and how much more ours takes: 0.02 is
2 %. Medians over short runs that alternate, each compared with its neighbour; intervals are 95 %,
by bootstrap over them.

(b) Side by side: 20 steps of GRPO and of Reinforce-Ada's defaults. `zero-variance` is the share
of groups trained on whose rewards are all equal, `reward` that of each prompt's first four draws,
both averaged over the steps; `seconds` are as in (a). Intervals are 95 %, Student's t over seeds.

    OMP_NUM_THREADS=1 python benchmarks/trl_overhead.py [--quick] [--parts ab] [--seeds N]
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from scipy import stats
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import rollwise as rw
from rollwise.config import ModelSettings
from rollwise.integrations.trl import AdaptiveGRPOTrainer, AdaptiveSampling
from rollwise.models.loading import load_model
from rollwise.tasks import make_running_sums

Estimate = dict[str, float]

GROUP, PROMPTS = 4, 64
GRPO = {
    "exit_rule": rw.FixedCount(GROUP),
    "schedule": rw.Rounds(GROUP, rounds=1),
    "objective": "grpo",
    "strategy": "all",
    "zero_variance": "keep",
}
EQUAL_DRAWS: dict[str, AdaptiveSampling | None] = {
    "trl": None,
    "ours, TRL's generation": AdaptiveSampling(**GRPO, engine="trl"),
    "ours": AdaptiveSampling(**GRPO),
}
SIDE_BY_SIDE: dict[str, AdaptiveSampling | None] = {
    "trl": None,
    "ours": AdaptiveSampling(),
}


class Clock(TrainerCallback):
    """Takes the processor time of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *arguments: Any, **others: Any) -> None:
        """Start."""
        self._began = time.process_time()

    def on_step_end(self, *arguments: Any, **others: Any) -> None:
        """Stop."""
        self.seconds.append(time.process_time() - self._began)


def is_correct(completions: list[str], answer: list[str], **others: Any) -> list[float]:
    """Reward a response whose text after the last `=` is the answer."""
    pairs = zip(completions, answer, strict=True)
    return [float(text.rpartition("=")[2].strip() == right) for text, right in pairs]


def train(
    sampling: AdaptiveSampling | None, steps: int, learning_rate: float, seed: int
) -> tuple[Clock, list[Mapping[str, float]]]:
    """Train with TRL's trainer (no sampling) or ours; returns times and what was logged."""
    model, tokenizer = load_model(ModelSettings(device="cpu", cpu_threads=1))
    problems = make_running_sums(1024, seed=0)
    rows = [{"prompt": p.messages[0]["content"], "answer": p.answer} for p in problems]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "model": model,
            "reward_funcs": is_correct,
            "train_dataset": Dataset.from_list(rows),
            "processing_class": tokenizer,
            "callbacks": [clock],
            "args": _arguments(folder, steps, learning_rate, seed),
        }
        if sampling is None:
            trainer = GRPOTrainer(**options)
        else:
            trainer = AdaptiveGRPOTrainer(**options, sampling=sampling)
        trainer.train()
    return clock, [line for line in trainer.state.log_history if "reward" in line]


def _arguments(folder: str, steps: int, learning_rate: float, seed: int) -> GRPOConfig:
    return GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=48,
        learning_rate=learning_rate,
        lr_scheduler_type="constant",
        epsilon_high=0.28,
        scale_rewards="none",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        log_level="error",
        seed=seed,
    )


def overhead(repeats: int, steps: int) -> dict[str, Estimate]:
    """Measure processor seconds of a step at equal draws, in runs that alternate."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in EQUAL_DRAWS}
    for repeat in range(repeats):
        names = list(EQUAL_DRAWS)
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            clock, _ = train(EQUAL_DRAWS[name], steps + 1, learning_rate=0.0, seed=repeat)
            seconds[name].append(clock.seconds[1:])
    found = {f"seconds_of_a_step, {name}": _median(runs) for name, runs in seconds.items()}
    for name in list(EQUAL_DRAWS)[1:]:
        found[f"overhead, {name}"] = _ratio(seconds[name], seconds["trl"])
    return found


def _median(runs: list[list[float]]) -> Estimate:
    return _bootstrapped(lambda chosen: np.median(np.concatenate([runs[i] for i in chosen])), runs)


def _ratio(ours: list[list[float]], theirs: list[list[float]]) -> Estimate:
    """Compare runs that were made one after the other: the machine's pace changes meanwhile."""
    pairs = zip(ours, theirs, strict=True)
    excess = [np.median(own) / np.median(other) - 1 for own, other in pairs]
    return _bootstrapped(lambda chosen: np.median([excess[i] for i in chosen]), excess)


def _bootstrapped(statistic: Any, runs: list[Any]) -> Estimate:
    places, rng = np.arange(len(runs)), np.random.default_rng(0)
    drawn = [statistic(rng.choice(places, len(places))) for _ in range(2000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"value": float(statistic(places)), "low": float(low), "high": float(high)}


def side_by_side(seeds: int, steps: int) -> dict[str, Estimate]:
    """Train both for some steps, and return what they drew and learned."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        for name, sampling in SIDE_BY_SIDE.items():
            clock, lines = train(sampling, steps, learning_rate=2e-4, seed=seed)
            figures = {
                "zero-variance": np.mean([line["frac_reward_zero_std"] for line in lines]),
                "reward": np.mean([line.get("rollwise/reward", line["reward"]) for line in lines]),
                "reward_of_last_5": np.mean(
                    [line.get("rollwise/reward", line["reward"]) for line in lines[-5:]]
                ),
                "seconds": np.median(clock.seconds[1:]),
                "draws": np.mean([line.get("rollwise/draws", PROMPTS * GROUP) for line in lines]),
            }
            for figure, value in figures.items():
                found.setdefault(f"{figure}, {name}", []).append(float(value))
    return {name: _over_seeds(values) for name, values in found.items()}


def _over_seeds(values: list[float]) -> Estimate:
    mean = float(np.mean(values))
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return {"value": mean, "low": float(mean - half), "high": float(mean + half)}


def show(title: str, figures: Mapping[str, Estimate]) -> None:
    """Print a table."""
    table = Table("", "value", "95 % interval", title=title)
    for name, f in figures.items():
        table.add_row(name, f"{f['value']:.4g}", f"{f['low']:.4g} to {f['high']:.4g}")
    Console().print(table)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 runs, few steps")
    parser.add_argument("--parts", default="ab", help="which parts, such as 'a'")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of (b)")
    arguments = parser.parse_args()
    seeds = 2 if arguments.quick else arguments.seeds
    warnings.filterwarnings("ignore", category=FutureWarning)
    figures: dict[str, Estimate] = {}
    if "a" in arguments.parts:
        figures |= overhead(2 if arguments.quick else 12, steps=3)
        show("Equal draws", figures)
    if "b" in arguments.parts:
        beside = side_by_side(seeds, steps=2 if arguments.quick else 20)
        show("Side by side", beside)
        figures |= beside
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
