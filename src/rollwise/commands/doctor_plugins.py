"""`rollwise doctor FILE`: a grader and an environment of the user's are called once."""

import asyncio
from collections.abc import Callable, Iterator
from inspect import isawaitable
from typing import Any

from rollwise.commands.check import Check
from rollwise.config import BUILT_IN_NAMES, TrainConfig
from rollwise.environments import Opening, checked_turn
from rollwise.errors import RollwiseError, one_line
from rollwise.grading.settings import FunctionSettings
from rollwise.plugins import calling, is_plugin
from rollwise.signals import raised_after
from rollwise.tasks import Problem, make_built_in, read_first
from rollwise.tasks.tables import is_path

SECONDS = 60.0
"""How long an environment may take to answer."""


def try_plugins(config: TrainConfig) -> Iterator[Check]:
    """Call the user's grader and environment with the first problem, unless the hub has it."""
    grader, data = config.grading.make(), config.data
    own_grader = isinstance(grader, FunctionSettings)
    own_environment = is_plugin(config.episode.type)
    built_in = data.train in BUILT_IN_NAMES
    if not (own_grader or own_environment) or not (built_in or is_path(data.train)):
        return
    read = make_built_in(data, 1, 0) if built_in else read_first(data.train, data).problems
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
        why = str(error) if isinstance(error, RollwiseError) else one_line(error)
        return Check(part, name, "broken", why, "see docs/plugins.md")


def _grade(grader: FunctionSettings, folder: str | None, problem: Problem) -> str:
    """Grade the reference answer as a response."""
    reward = grader.loader(folder)()(problem.answer, problem.answer)
    return f"{grader.function}: reward {float(reward):g}"


def _play(environment: Any, problem: Problem) -> str:
    """Have the environment answer one reply."""
    with calling(environment, "begin"):
        play = environment.begin(Opening(problem.messages, problem.answer, seed=0))
    with calling(play, "step"):
        turn = play.step(problem.answer)
        if isawaitable(turn):
            turn = asyncio.run(_awaited(turn))
    checked_turn(play, turn)
    return "answers"


async def _awaited(turn: Any) -> Any:
    return await turn
