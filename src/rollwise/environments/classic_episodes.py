"""Environments of verifiers 0.3 with several turns or tools: rollouts that our engine answers."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage, ToolCall

from rollwise.environments.classic import classic_questions
from rollwise.environments.environment import Question, messages_of
from rollwise.environments.episodes import EpisodeEnvironment, Message, Opening, Play, Turn
from rollwise.errors import ConfigError

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
"""How a model calls a tool: as Qwen and Hermes models do, a line of JSON in these tags."""

TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{signatures}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""What the chat templates of Qwen models say of tools."""


class ClassicEpisodes(EpisodeEnvironment):
    """A `verifiers.MultiTurnEnv`: each draw is a rollout of it, in which our model replies.

    Raises:
        ConfigError: It is of another kind, or scores responses relative to each other.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._name = name
        self._environment = verifiers.load_environment(name.partition("@")[0], **arguments)
        if reason := _unsupported(self._environment):
            raise ConfigError(f"`data.environment` {name!r} cannot be played: it {reason}")

    @property
    def roles(self) -> Sequence[str]:
        """See `EpisodeEnvironment`."""
        return ("tool",) if self._environment.tool_defs else ("user",)

    def questions(self, split: str) -> list[Question]:
        """See `Environment`; tools are described in the system's message, as Qwen has it."""
        questions = classic_questions(self._environment, split, self._name)
        tools = self._environment.tool_defs
        if not tools:
            return questions
        described = TOOLS.format(signatures="\n".join(_signature(tool) for tool in tools))
        return [Question(_told(q.messages, described), q.row) for q in questions]

    def score(self, response: str, row: str) -> float:
        """Refuse: the environment gives rewards at the end of its episodes."""
        raise ConfigError(
            f"`grading.type` must not be `environment` where {self._name!r} is played in episodes"
        )

    def begin(self, opening: Opening) -> Play:
        """Begin a rollout; the problem's answer is the environment's row."""
        return _Rollout(self._environment, json.loads(opening.answer), self._name)


class _Rollout(Client):
    """A rollout under way, and the client that it takes for its model's server."""

    def __init__(self, environment: Any, row: Mapping[str, Any], name: str) -> None:
        super().__init__(None)
        self._environment, self._row, self._name = environment, row, name
        self._asked: asyncio.Queue[Sequence[Message]] = asyncio.Queue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._rollout: asyncio.Task[Any] | None = None
        self._shown: list[Message] = []

    async def step(self, reply: str) -> Turn:
        """Hand a reply to the rollout, and wait until it asks again or ends."""
        if self._rollout is None:
            run = self._environment.run_rollout(self._row, self, "", {})
            self._rollout = asyncio.ensure_future(run)
            first = await self._next_question()
            if first is None:
                return self._ended()
            expected = messages_of(self._row["prompt"], self._name)
            if [m["content"] for m in first] != [m["content"] for m in expected]:
                raise ValueError("the environment asks another thing than the prompt of its row")
            self._shown = list(first)
        self._replies.put_nowait(reply)
        asked = await self._next_question()
        if asked is None:
            return self._ended()
        known = len(self._shown) + 1  # and what the model has just said
        if [m["content"] for m in asked[: known - 1]] != [m["content"] for m in self._shown]:
            raise ValueError("the environment rewrites what was said before")
        self._shown = list(asked)
        return Turn(asked[known:], reward=0.0)

    def close(self) -> None:
        """End the rollout; called from another thread than the event loop's."""
        if self._rollout is not None and not self._rollout.done():
            self._rollout.get_loop().call_soon_threadsafe(self._rollout.cancel)

    async def get_response(self, prompt: Any, *_: Any, tools: Any = None, **__: Any) -> Response:
        """Ask our engine by way of `step`."""
        self._asked.put_nowait([_as_message(message) for message in prompt])
        text = await self._replies.get()
        content, calls = (text, None) if not tools else _calls_in(text)
        said = ResponseMessage(
            content=content, tool_calls=calls, finish_reason="stop", is_truncated=False
        )
        return Response(id="", created=0, model="", message=said)

    async def _next_question(self) -> Sequence[Message] | None:
        """Wait until the rollout asks; None if it has ended."""
        assert self._rollout is not None
        asked = asyncio.ensure_future(self._asked.get())
        await asyncio.wait({asked, self._rollout}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        asked.cancel()
        return None

    def _ended(self) -> Turn:
        assert self._rollout is not None
        done = self._rollout.result()
        if done["error"]:
            raise RuntimeError(done["error"])
        return Turn(done=True, reward=float(done["reward"]))

    # The abstract methods, which are for clients of a server; `close` is ours.
    setup_client = to_native_tool = to_native_prompt = get_native_response = None
    raise_from_native_response = from_native_response = None


def _unsupported(environment: Any) -> str:
    if not isinstance(environment, verifiers.MultiTurnEnv):
        return f"is a {type(environment).__name__}, no MultiTurnEnv"
    if environment.requires_group_rollouts:
        return "scores responses by each other (its rubric has reward functions of a group)"
    return ""


def _as_message(message: Any) -> Message:
    cells = message if isinstance(message, Mapping) else message.model_dump(exclude_none=True)
    content = cells.get("content") or ""
    if not isinstance(content, str):
        raise ValueError(f"an environment must say text, got {content!r:.200}")
    return {"role": cells["role"], "content": content}


def _calls_in(text: str) -> tuple[str, list[ToolCall] | None]:
    """Split what the model said into its words and its calls; text that is no call stays text."""
    calls = []
    for number, written in enumerate(CALL.findall(text)):
        try:
            call = json.loads(written)
            arguments = json.dumps(call["arguments"])
            calls.append(ToolCall(id=f"call_{number}", name=call["name"], arguments=arguments))
        except (ValueError, KeyError, TypeError):
            return text, None
    return (CALL.sub("", text).strip(), calls) if calls else (text, None)


def _signature(tool: Any) -> str:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return json.dumps({"type": "function", "function": function})


def _told(messages: Sequence[dict[str, str]], described: str) -> tuple[dict[str, str], ...]:
    """Add a description to the system's message, or put it first."""
    first, *rest = messages
    if first["role"] == "system":
        return {"role": "system", "content": f"{first['content']}\n\n{described}"}, *rest
    return {"role": "system", "content": described}, *messages
