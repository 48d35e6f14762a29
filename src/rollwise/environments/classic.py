"""Environments of verifiers up to 0.3: a data set, and a rubric of reward functions."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage

from rollwise.environments.environment import Question, messages_of
from rollwise.errors import ConfigError, DataError


class ClassicEnvironment:
    """A `verifiers.SingleTurnEnv`; a response is scored by a rollout that gives it as the reply.

    Raises:
        ConfigError: It has several turns or tools, or scores responses relative to each other.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._name = name
        self._environment = verifiers.load_environment(name.partition("@")[0], **arguments)
        self._runner = asyncio.Runner()
        if reason := _unsupported(self._environment):
            raise ConfigError(
                f"`data.environment` must be one of a single turn without tools; {name!r} {reason} "
                "(`episode.type` = `environment` plays several turns)"
            )

    def questions(self, split: str) -> list[Question]:
        """See `Environment`; without evaluation data, verifiers takes the training data."""
        return classic_questions(self._environment, split, self._name)

    def score(self, response: str, row: str) -> float:
        """See `Environment`; also raises if the environment asks something else than its row."""
        cells = json.loads(row)
        model = _FixedReply(response, to=messages_of(cells["prompt"], self._name))
        done = self._runner.run(self._environment.run_rollout(cells, model, "", {}))
        if done["error"]:
            raise RuntimeError(done["error"])
        return float(done["reward"])


def classic_questions(environment: Any, split: str, name: str) -> list[Question]:
    """List the questions of any environment of verifiers up to 0.3 (see `Environment`)."""
    try:
        rows = environment.get_dataset() if split == "train" else environment.get_eval_dataset()
    except ValueError as error:
        raise DataError(f"{name} has no data to train on: {error}") from error
    return [_question(f"{name}, row {i} (from 0)", row) for i, row in enumerate(rows)]


def _question(place: str, row: Mapping[str, Any]) -> Question:
    messages = messages_of(row["prompt"], place)
    try:
        return Question(messages, json.dumps(row, ensure_ascii=False))
    except TypeError as error:
        raise DataError(f"{place} holds what cannot be written in JSON: {error}") from error


def _unsupported(environment: Any) -> str:
    if not isinstance(environment, verifiers.SingleTurnEnv):
        return f"is a {type(environment).__name__}, no SingleTurnEnv"
    if environment.tool_defs:
        return "has tools"
    if environment.requires_group_rollouts:
        return "scores responses by each other (its rubric has reward functions of a group)"
    return ""


class _FixedReply(Client):
    """A client whose model replies `text`, to one prompt only."""

    def __init__(self, text: str, to: Sequence[Mapping[str, str]]) -> None:
        super().__init__(None)
        self._text = text
        self._asked = [message["content"] for message in to]

    async def get_response(self, prompt: Any, model: str, *_: Any, **__: Any) -> Response:
        if [message["content"] for message in prompt] != self._asked:
            raise ValueError("the environment asks another thing than the prompt of its row")
        said = ResponseMessage(content=self._text, finish_reason="stop", is_truncated=False)
        return Response(id="", created=0, model=model, message=said)

    # The abstract methods, which are for clients of a server.
    setup_client = to_native_tool = to_native_prompt = get_native_response = None
    raise_from_native_response = from_native_response = close = None
