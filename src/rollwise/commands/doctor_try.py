"""What `rollwise doctor FILE` says of memory: predicted, and with `--try` by the largest step."""

import dataclasses
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rollwise.config import TrainConfig
from rollwise.config.defaults import NO_LIMIT
from rollwise.errors import RollwiseError, is_out_of_memory, one_line
from rollwise.grading import Grader
from rollwise.grading.worker import peak_memory
from rollwise.machine import usable_memory
from rollwise.records import Row, RunFolder
from rollwise.sampling import ExitRule, Rounds

if TYPE_CHECKING:  # doctor loads torch only for a step
    import torch

    from rollwise.training.run import Run

Found = tuple[Literal["works", "broken"], str, str]
"""Whether it works, what was found, and what to change."""


class EveryOther(Grader):
    """Grades every other response to a prompt as correct, so that each group is learned from."""

    def __init__(self) -> None:
        self._rewards = defaultdict[str, Iterator[float]](lambda: itertools.cycle((1.0, 0.0)))

    async def reward(self, response: str, answer: str, row: Any = None) -> float:
        """Grade a response to the prompt whose key is given as answer."""
        return next(self._rewards[answer])


def predict_memory(config: TrainConfig, gpu: float | None) -> Found:
    """Predict what a run with the local backend needs, here or on a GPU of `gpu` GB."""
    import torch

    from rollwise.models.loading import pick_device
    from rollwise.models.saved import describe_saved
    from rollwise.training.learner import learner_threads
    from rollwise.training.memory import FIX, SAFE, Unpredictable, fit_to, memory_of

    model = describe_saved(config.model)[0].config
    device = pick_device(config.model.device)
    try:
        if gpu or device.type == "cuda":
            of_device = gpu or torch.cuda.get_device_properties(device).total_memory / 1e9
            total = int(of_device * 1e9)
            fitted, need = fit_to(config, model, total)
            tokens = fitted.learner.micro_batch_tokens
            where = f"GB of a GPU, with micro-batches of {tokens:,} tokens"
        else:
            threads = learner_threads(device.type, config.model.cpu_threads)
            total, need = usable_memory(), memory_of(config, model, False, threads)
            where = "GB of memory"
    except Unpredictable as error:
        return "works", str(error), ""
    fits = need.peak <= total / SAFE
    detail = f"{total / 1e9:.1f} {where}; this run needs at most {need.describe()}"
    return ("works" if fits else "broken", detail, FIX)


def try_step(config: TrainConfig) -> Found:
    """Take the largest step of a run, in a folder that is removed."""
    from rollwise.models.loading import pick_device
    from rollwise.training.memory import FIX
    from rollwise.training.run import start_run

    untracked = replace(config.records, trackers=[])
    try:
        device = pick_device(config.model.device)
        with tempfile.TemporaryDirectory() as folder:
            quiet = replace(config, records=untracked)
            run = start_run(quiet, RunFolder(Path(folder) / "run"))
            with run.built:
                metrics = largest_step(run)
    except (RollwiseError, MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return "broken", f"there is not enough memory: {one_line(error)}", FIX
        if not isinstance(error, RollwiseError):
            raise
        return "broken", str(error), ""
    seconds, draws = metrics["seconds"], metrics["draws"]
    detail = (
        f"{_peak(device)}; {metrics['prompts']:,} prompts, {draws:,} responses of "
        f"{metrics['tokens'] / draws:,.0f} tokens: {seconds['sampling']:.1f} s drawing, "
        f"{seconds['learning']:.1f} s learning"
    )
    if config.steps < NO_LIMIT:
        whole = timedelta(seconds=round(config.steps * (seconds["sampling"] + seconds["learning"])))
        detail += f"; {config.steps:,} steps take at most {whole}, without evaluations"
    return "works", detail, ""


def largest_step(run: "Run") -> Row:
    """Take a step with as many draws as it can have, all as long as they can be.

    Every prompt gets as many tokens as the longest, and as many draws as its rule and schedule
    allow, in one round. The engine ignores what ends a response, if it can.
    """
    from rollwise.training.loop import draw, learn

    draws = _most_draws(run.recipe.resolved_exit_rule, run.recipe.resolved_schedule.max_samples)
    schedule = Rounds(size=draws, rounds=1)
    run.recipe = dataclasses.replace(run.recipe, schedule=schedule, allocation=None)
    longest = max(map(len, run.prompts.values()))
    run.prompts = {
        key: list(itertools.islice(itertools.cycle(tokens), longest))
        for key, tokens in run.prompts.items()
    }
    run.grader, run.answers = EveryOther(), {key: str(key) for key in run.prompts}
    run.engine.ignore_ends()
    return learn(run, draw(run, 1))


def _most_draws(rule: ExitRule, most: int) -> int:
    """Return how many draws, `most` or fewer, satisfy a rule whatever their rewards are."""
    numbers = range(1, most)
    every = (n for n in numbers if all(rule.satisfied(p, n - p) for p in range(n + 1)))
    return next(every, most)


def _peak(device: "torch.device") -> str:
    """Describe the peak memory: of tensors on a GPU, or else of this process."""
    if device.type == "cuda":
        import torch

        total = torch.cuda.get_device_properties(device).total_memory
        peak = torch.cuda.max_memory_allocated(device)
        return f"{peak / 1e9:.2f} of {total / 1e9:.1f} GB on {torch.cuda.get_device_name(device)}"
    return f"{peak_memory() / 1e9:.2f} GB of host memory"
