"""Environments of verifiers: a taskset, whose tasks reward the trace of a rollout."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from verifiers import v1 as vf
from verifiers.v1.state import state_cls
from verifiers.v1.utils.decorators import discover_decorated

from rollwise.errors import ConfigError, DataError


class Question(NamedTuple):
    """What the model is asked by a row of an environment's data, and the row in JSON."""

    messages: tuple[dict[str, str], ...]
    row: str


class TasksetEnvironment:
    """A `verifiers.v1.Taskset` whose tasks are each answered once, by text.

    A response is scored as when a trace is replayed: its task is rebuilt from the row, and has
    no runtime.

    Raises:
        ConfigError: It needs more than that, or has no end or no reward.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        config = vf.taskset_config_type(name).model_validate({"id": name, **arguments})
        self._name = name
        self._taskset = vf.load_taskset(config)
        self._task: type[Any] = self._taskset.task_type()
        self._runner = asyncio.Runner()
        if reason := self._unsupported():
            raise ConfigError(
                f"`data.environment` must have a single turn and no tools; {name!r} {reason}"
            )

    def _unsupported(self) -> str:
        if self._taskset.INFINITE:
            return "never ends; limit it by its arguments"
        first = next(iter(self._taskset), None)
        if first is None:
            return "has no tasks"
        config = self._taskset.config
        reasons = {
            "has an environment of its own, which may play in several turns": (
                vf.environment_class(self._name) is not vf.SingleAgentEnv
            ),
            "has a harness of its own": vf.default_harness_id(self._name) == self._name,
            "has tools": bool(first.toolsets(config.task) or self._taskset.toolsets(config)),
            "rewrites what the model is asked or says": discover_decorated(first, "intercept"),
            "has no reward": not (first.hooks("reward") or first.plugged_judges()),
            "needs a runtime to prepare its tasks in": (
                first.data.image
                or first.NEEDS_CONTAINER
                or self._task.setup is not vf.Task.setup
                or self._task.finalize is not vf.Task.finalize
            ),
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")

    def questions(self) -> list[Question]:
        """List its questions in its order; a `DataError` names one that is not text only."""
        return [
            _question(f"{self._name}, row {i} (from 0)", task.data)
            for i, task in enumerate(self._taskset)
        ]

    def score(self, response: str, row: str) -> float:
        """Return the reward of a response to the question of `row`; raises what its code raises."""
        data = self._task.data_type().model_validate_json(row)
        task = self._task(data, self._taskset.config.task)
        trace = _trace(self._task, data, response)
        self._runner.run(task.score(trace))
        return float(trace.reward)


def _question(place: str, data: Any) -> Question:
    """Convert a row whose prompt is a text or messages of verifiers; errors name its place."""
    said = data.prompt
    asked = [vf.UserMessage(content=said)] if isinstance(said, str) else said or ()
    messages = tuple({"role": m.role, "content": m.content} for m in asked)
    if not messages or not all(isinstance(message["content"], str) for message in messages):
        raise DataError(f"{place} must have a prompt of text alone; it is {said!r:.200}")
    if data.system_prompt:
        messages = ({"role": "system", "content": data.system_prompt}, *messages)
    return Question(messages, data.model_dump_json(exclude_defaults=True))


def _trace(task: type[Any], data: Any, response: str) -> Any:
    """Make the trace of a rollout in which the model was asked `data` and replied `response`."""
    asked = _question("", data).messages
    said = {"role": "assistant", "content": response}
    nodes = [
        vf.MessageNode(message=message, parent=i - 1 if i else None)
        for i, message in enumerate((*asked, said))
    ]
    nodes[-1].sampled = True
    return vf.Trace(
        task=vf.TraceTask(type=task.__name__, data=data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        state=state_cls(task)(),
        nodes=nodes,
        is_completed=True,
        ok=True,
    )
