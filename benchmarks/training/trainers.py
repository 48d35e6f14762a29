"""Single responses and GRPO by the same settings in each trainer: rollwise's, TRL, verl, Tinker.

Each trains the built-in model on the built-in task by `trainers.toml`, 128 responses a step, and
evaluates on the same held-out problems. Tinker is a local server of its protocol, and verl runs by
its tests' scaffolding on the CPU. Tinker trains LoRA adapters, so the own trainer does so as well
(`own-lora`), to compare it with.

The trainers need environments of their own (`.ci/run` makes them). Run each where it is installed,
with one folder for all; a run that is there is left as it is. Then draw the figure and the table:

    python benchmarks/training/trainers.py train own own-lora  [--seeds 3] [--output runs/trainers]
    python benchmarks/training/trainers.py train trl      (needs the extra `trl`)
    python benchmarks/training/trainers.py train verl     (needs the extra `verl`, and pytest)
    python benchmarks/training/trainers.py train tinker   (needs tinker, lora, fastapi, uvicorn)
    python benchmarks/training/trainers.py show                writes docs/images/trainers.svg
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from figures import COLORS, IMAGES, svg
from measuring import print_line, print_table

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_suffix(".toml")
RECORD = Path(__file__).parent / "trainers.jsonl"
TITLE = "Held-out accuracy by step in each trainer, with single responses and with GRPO"

METHODS: dict[str, dict[str, Any]] = {
    "single responses": {"method": "single"},
    "GRPO": {"method": "grpo", "prompts": {"batch_size": 32}},
}
"""Both have the learner that single responses have by default."""
NAMES = {
    "own": "rollwise train",
    "own-lora": "rollwise train, LoRA",
    "trl": "TRL",
    "verl": "verl",
    "tinker": "Tinker (LoRA)",
}

LORA = {"model": {"lora_rank": 32}, "learner": {"learning_rate": 7e-4}}
"""Adapters take a higher rate than the weights themselves; the same for both methods."""


def main() -> None:
    """Train, or show what was trained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "show"))
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help=", ".join(NAMES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="fewer than the settings have, for a look")
    parser.add_argument("--output", type=Path, default=Path("runs/trainers"))
    arguments = parser.parse_args()
    if arguments.what == "show":
        show(arguments.output)
        return
    for seed in range(arguments.seeds):
        for trainer in arguments.trainers:
            for method in METHODS:
                train(trainer, method, seed, arguments.steps, arguments.output.resolve())


def train(trainer: str, method: str, seed: int, steps: int | None, output: Path) -> None:
    """Make a run, unless it is there."""
    path = output / trainer / method.replace(" ", "-") / str(seed)
    if (path / "done").exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"seed": seed} | ({"steps": steps} if steps else {})
    TRAINERS[trainer](path, merged(METHODS[method], given))
    (path / "done").touch()
    print(trainer, method, seed, [round(value, 3) for value in heldout(path).values()], flush=True)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings; later ones win."""
    from rollwise.config.base import merge

    found: dict[str, Any] = {}
    for layer in layers:
        found = merge(found, layer)
    return found


def by_own(path: Path, given: Mapping[str, Any]) -> None:
    """Train by `rollwise train`."""
    from rollwise.records import flatten

    options = [
        part for key, value in flatten(given, ".").items() for part in (f"--{key}", str(value))
    ]
    command = [sys.executable, "-m", "rollwise", "train", str(SETTINGS), "--output", str(path)]
    with path.with_suffix(".log").open("wb") as log:
        subprocess.run([*command, *options], check=True, stdout=log, stderr=subprocess.STDOUT)


def by_own_with_adapters(path: Path, given: Mapping[str, Any]) -> None:
    """Train LoRA adapters by `rollwise train`."""
    by_own(path, merged(given, LORA))


def by_tinker(path: Path, given: Mapping[str, Any]) -> None:
    """Train LoRA adapters by `rollwise train`, at the tests' server of Tinker's protocol."""
    sys.path.insert(0, str(ROOT / "tests/integrations/tinker"))
    from server import KEY

    command = [sys.executable, str(ROOT / "tests/integrations/tinker/server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        os.environ |= {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0", "TINKER_BASE_URL": url}
        try:
            by_own(path, merged(given, LORA, {"backend": {"type": "tinker"}}))
        finally:
            server.kill()


VERL = """
[verl.actor_rollout_ref.actor.fsdp_config.mixed_precision]
param_dtype = "fp32"
reduce_dtype = "fp32"
buffer_dtype = "fp32"
"""
"""The learner's precision, as in the other trainers; weights go to the engine in bfloat16."""


def by_verl(path: Path, given: Mapping[str, Any]) -> None:
    """Train by `rollwise verl`, on the CPU by the tests' scaffolding."""
    sys.path.insert(0, str(ROOT / "tests/integrations/verl"))
    from verl_runs import run

    from rollwise.config import read_toml
    from rollwise.records import flatten

    settings = flatten(merged(read_toml(SETTINGS), {"data": {"max_terms": 10}}, given), ".")
    run(path, settings, verl=VERL)


def by_trl(path: Path, given: Mapping[str, Any]) -> None:
    """Train by `AdaptiveGRPOTrainer`; `rollwise train`'s evaluation looks at its model."""
    from datasets import Dataset
    from trl import GRPOConfig

    from rollwise.config import make_config, read_toml
    from rollwise.grading import as_reward_function
    from rollwise.integrations.trl import AdaptiveGRPOTrainer
    from rollwise.records import RunFolder
    from rollwise.training.run import start_run

    config = make_config(merged(read_toml(SETTINGS), given))
    run = start_run(config, RunFolder(path))
    learner, updates = config.learner, config.learner.mini_batches
    rows = [
        {"prompt": question, "answer": run.answers[key]}
        for key, question in run.questions.items()
        if key not in set(run.heldout)
    ]
    size = config.exit.samples
    with run.built:
        trainer = AdaptiveGRPOTrainer(
            model=run.learner.model,
            reward_funcs=as_reward_function(run.grader),
            train_dataset=Dataset.from_list(rows),
            processing_class=run.tokenizer,
            callbacks=[evaluator(run)],
            sampling=None if size == 1 else grpo(size),
            args=GRPOConfig(
                output_dir=str(path / "trl"),
                max_steps=config.steps * updates,
                per_device_train_batch_size=config.prompts.batch_size * size // updates,
                steps_per_generation=updates,
                num_generations=max(size, 2),
                max_completion_length=config.engine.max_new_tokens,
                learning_rate=learner.learning_rate,
                lr_scheduler_type="constant_with_warmup",
                warmup_steps=learner.warmup_updates,
                max_grad_norm=learner.max_grad_norm,
                epsilon=learner.clip_low,
                epsilon_high=learner.clip_high,
                loss_type="grpo" if learner.average == "responses" else "dapo",
                logging_steps=updates,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                seed=config.seed,
            ),
        )
        trainer.train()


def grpo(size: int) -> Any:
    """Return GRPO's sampling, as on TRL's page."""
    import rollwise as rw
    from rollwise.integrations.trl import AdaptiveSampling

    return AdaptiveSampling(
        exit_rule=rw.FixedCount(size),
        schedule=rw.Rounds(size, rounds=1),
        objective="grpo",
        strategy="all",
        normalize_gradients=True,
        zero_variance="keep",
    )


def evaluator(run: Any) -> Any:
    """Make what logs held-out figures of TRL's model when `rollwise train` would."""
    from transformers import TrainerCallback

    from rollwise.training.loop import evaluate

    class Evaluator(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            self.on_step_end(args, state, control)

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            step, part = divmod(state.global_step, run.config.learner.mini_batches)
            if part or step % run.config.evaluation.every:
                return
            run.engine.load_weights({})  # it shares the model
            run.folder.log({"step": step, "heldout": evaluate(run)})

    return Evaluator()


TRAINERS = {
    "own": by_own,
    "own-lora": by_own_with_adapters,
    "trl": by_trl,
    "verl": by_verl,
    "tinker": by_tinker,
}


def heldout(path: Path) -> dict[int, float]:
    """Read the held-out avg@4 of a run, by step."""
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["heldout"]["avg@4"]["value"] for line in lines if "heldout" in line}


def record(output: Path) -> None:
    """Write the curves of all finished runs down, one a line."""
    lines = []
    for trainer in TRAINERS:
        for method in METHODS:
            for done in sorted((output / trainer / method.replace(" ", "-")).glob("*/done")):
                run = {"trainer": trainer, "method": method, "seed": int(done.parent.name)}
                lines.append(json.dumps(run | {"heldout": heldout(done.parent)}) + "\n")
    RECORD.write_text("".join(lines), encoding="utf-8")


def recorded() -> dict[tuple[str, str], list[dict[int, float]]]:
    """Read the curves that were written down, a list over seeds for each trainer and method."""
    found: dict[tuple[str, str], list[dict[int, float]]] = {}
    for line in map(json.loads, RECORD.read_text(encoding="utf-8").splitlines()):
        curve = {int(step): value for step, value in line["heldout"].items()}
        found.setdefault((line["trainer"], line["method"]), []).append(curve)
    return found


def show(output: Path) -> None:
    """Draw the figure, and print a table and a line of JSON."""
    if output.exists():
        record(output)
    curves = recorded()
    draw(curves)
    rows, figures = [], {}
    for trainer in dict.fromkeys(trainer for trainer, _ in curves):
        ends = {m: [c[max(c)] for c in curves.get((trainer, m), [])] for m in METHODS}
        figures |= {f"{trainer}, {m}": estimate(values) for m, values in ends.items() if values}
        seeds = " and ".join(dict.fromkeys(str(len(values)) for values in ends.values()))
        rows.append((trainer, *(spelt(values) for values in ends.values()), seeds))
    print_table("Held-out avg@4 after the last step", ("trainer", *METHODS, "seeds"), rows)
    print_line(figures)


def estimate(values: Sequence[float]) -> dict[str, float]:
    """Return the mean over seeds, with the lowest and the highest."""
    return {"value": float(np.mean(values)), "low": min(values), "high": max(values)}


def spelt(values: Sequence[float]) -> str:
    """Write the mean over seeds, and the range."""
    if not values:
        return "-"
    return f"{np.mean(values):.2f}" + (
        f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    )


def draw(curves: Mapping[tuple[str, str], list[dict[int, float]]]) -> None:
    """Draw a panel for each trainer: means over seeds, bands from the lowest to the highest."""
    trainers = list(dict.fromkeys(trainer for trainer, _ in curves))
    with svg(IMAGES / "trainers.svg", TITLE, (2.2 * len(trainers), 2.9)) as figure:
        panels = figure.subplots(1, len(trainers), sharey=True, squeeze=False)[0]
        for axes, trainer in zip(panels, trainers, strict=True):
            for method, color in zip(METHODS, COLORS, strict=False):
                if runs := curves.get((trainer, method)):
                    steps = sorted(runs[0])
                    values = np.array([[run[step] for step in steps] for run in runs])
                    axes.plot(steps, values.mean(axis=0), color=color, label=method)
                    low, high = values.min(axis=0), values.max(axis=0)
                    axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
            axes.set_title(NAMES[trainer])
            axes.set_xlabel("step")
        panels[0].set_ylabel("held-out avg@4")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


if __name__ == "__main__":
    main()
