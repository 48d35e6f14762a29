"""What `rollwise doctor FILE` tries out: graders, environments, and with `--try` a long step."""

import asyncio
import dataclasses
import itertools
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollwise.commands.check import Check
from rollwise.config import BUILT_IN_NAMES, TrainConfig
from rollwise.environments import Opening, checked_turn
from rollwise.errors import RollwiseError, is_out_of_memory, one_line
from rollwise.grading.function import load_function
from rollwise.grading.settings import FunctionSettings
from rollwise.plugins import is_plugin, plugin_folders, raised_in_plugin
from rollwise.records import Row, RunFolder
from rollwise.sampling import ExitRule, Rounds
from rollwise.signals import raised_after
from rollwise.step.session import finished
from rollwise.tasks import Problem, make_built_in, read_source
from rollwise.tasks.tables import is_path

if TYPE_CHECKING:  # doctor loads torch for a step alone
    import torch

    from rollwise.training.state import Run

SECONDS = 60.0
"""How long an environment may take to answer."""

FIX = """set model.gradient_checkpointing = true
lower learner.micro_batch_tokens
lower engine.batch_size; with vLLM set engine.sleep_level = 2, and a lower
engine.gpu_memory_utilization
set model.lora_rank = 32"""
"""What to change first where memory is not enough."""


def try_plugins(config: TrainConfig) -> Iterator[Check]:
    """Call the user's grader and environment once, on the first problem, unless the hub has it.

    Plug-ins of the method are called in the step of `--try`, and by `rollwise plan`.
    """
    grader, data = config.grading.make(), config.data
    own_grader = isinstance(grader, FunctionSettings)
    own_environment = is_plugin(config.episode.type)
    built_in = data.train in BUILT_IN_NAMES
    if not (own_grader or own_environment) or not (built_in or is_path(data.train)):
        return
    read = make_built_in(data, 1, 0) if built_in else read_source(data.train, data, "").problems
    problem, seconds = read[0], config.grading.timeout
    if own_grader:
        yield _called("graders", seconds, lambda: _grade(grader, config.plugin_folder, problem))
    if own_environment:
        yield _called("environments", SECONDS, lambda: _play(config.episode.make(), problem))


def _called(part: str, seconds: float, call: Callable[[], str]) -> Check:
    name = "your own, called once"
    try:
        with raised_after(seconds, TimeoutError(f"no result after {seconds:g} s")):
            return Check(part, name, "works", call())
    except Exception as error:  # a plug-in may raise anything
        own = isinstance(error, RollwiseError)
        why = str(error) if own else raised_in_plugin(error) or one_line(error)
        return Check(part, name, "broken", why, "see docs/plugins.md")


def _grade(grader: FunctionSettings, folder: str | None, problem: Problem) -> str:
    """Grade the reference answer as a response."""
    folders = plugin_folders(folder)
    grade = load_function(grader.function, folders, grader.settings)
    reward = grade(problem.answer, problem.answer)
    return f"{grader.function}: reward {float(reward):g}"


def _play(environment: Any, problem: Problem) -> str:
    """Have the environment answer one reply."""
    play = environment.begin(Opening(problem.messages, problem.answer, seed=0))
    turn = play.step(problem.answer)
    if isawaitable(turn):
        turn = asyncio.run(_awaited(turn))
    checked_turn(play, turn)
    return "answers"


async def _awaited(turn: Any) -> Any:
    return await turn


class EveryOther:
    """Grades every other response to a prompt as correct, so that each group is learned from."""

    failures = 0

    def __init__(self) -> None:
        self._graded: Counter[str] = Counter()

    def submit(self, responses: Sequence[str], answers: Sequence[str]) -> list[Future[float]]:
        """Grade responses to the prompts whose keys are given as answers."""
        rewards = []
        for key in answers:
            self._graded[key] += 1
            rewards.append(finished(float(self._graded[key] % 2)))
        return rewards


def try_step(config: TrainConfig) -> Check:
    """Take the largest step of a run, in a folder that is removed, and say what it took."""
    from rollwise.models.loading import pick_device
    from rollwise.training.run import start_run

    name = ("memory", "one step")
    quiet = config.model_copy(
        update={"records": config.records.model_copy(update={"trackers": []})}
    )
    try:
        device = pick_device(config.model.device)
        with tempfile.TemporaryDirectory() as folder:
            run = start_run(quiet, RunFolder(Path(folder) / "run"))
            with run.parts:
                metrics = largest_step(run)
    except (RollwiseError, MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            detail = f"there is not enough memory: {one_line(error)}"
            return Check(*name, "broken", detail, FIX)
        if not isinstance(error, RollwiseError):
            raise
        return Check(*name, "broken", str(error))
    seconds, draws = metrics["seconds"], metrics["draws"]
    detail = (
        f"{_peak(device)}; {metrics['prompts']:,} prompts, {draws:,} responses of "
        f"{metrics['tokens'] / draws:,.0f} tokens: {seconds['sampling']:.1f} s drawing, "
        f"{seconds['learning']:.1f} s learning"
    )
    return Check(*name, "works", detail)


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
    grader: Any = EveryOther()
    run.grader, run.answers = grader, {key: str(key) for key in run.prompts}
    run.engine.ignore_ends()
    return learn(run, draw(run, 1))


def _most_draws(rule: ExitRule, most: int) -> int:
    """Return how many draws, `most` or fewer, satisfy a rule whatever their rewards are."""
    numbers = range(1, most)
    every = (n for n in numbers if all(rule.satisfied(p, n - p) for p in range(n + 1)))
    return next(every, most)


def _peak(device: "torch.device") -> str:
    """Say how much memory was taken at most: of a GPU by tensors, else by this process."""
    if device.type == "cuda":
        import torch

        total = torch.cuda.get_device_properties(device).total_memory
        peak = torch.cuda.max_memory_allocated(device)
        return f"{peak / 1e9:.2f} of {total / 1e9:.1f} GB on {torch.cuda.get_device_name(device)}"
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f"{peak / 1e9:.2f} GB of the machine's memory"
