"""TRL's tools and environments: draws of several turns, played as TRL plays them."""

import asyncio
import inspect
import math
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import transformers
import trl
from transformers import PreTrainedTokenizerBase
from trl.trainer.grpo_trainer import parse_response

from rollwise.engines import Completion, Engine, EpisodeEngine, EpisodeLimits
from rollwise.engines.engine import Result
from rollwise.engines.episode_state import Playing
from rollwise.environments import SingleTurn, Turn
from rollwise.sampling import Draw
from rollwise.sampling.draws import Key
from rollwise.step.episodes import End

Messages = list[dict[str, Any]]
"""A conversation, or a part of one, as TRL and its reward functions have it."""

Row = Mapping[str, Any]
"""A row of the data set."""

NOT_TOOLS = ("reset", "get_reward")
"""Public methods of an environment that the model cannot call."""


class ToolEngine(EpisodeEngine):
    """Plays draws with TRL's tools: the model calls them, and goes on from what they answer.

    A turn is parsed by TRL, and what the tools answer is rendered by TRL, so an episode has the
    tokens that `GRPOTrainer` would give it. As there, `max_completion_length` bounds the whole of
    it, and what a tool raises is told to the model.

    Args:
        engine: Draws the turns.
        trainer: A `GRPOTrainer` that was made with tools or environments.
        tools: Those that belong to no environment.
        environments: The argument `environment_factory`, or None.

    Attributes:
        has_environments: Whether there are environments.

    Raises:
        ValueError: What a tool answers cannot be appended by the model's chat template.
    """

    def __init__(
        self, engine: Engine, trainer: Any, tools: Sequence[Callable[..., Any]], environments: Any
    ) -> None:
        self._longest: int = trainer.max_completion_length
        context = trainer.model.config.get_text_config().max_position_embeddings
        limits = EpisodeLimits(sys.maxsize, self._longest, context=context or math.inf)
        encode = trainer._get_tool_suffix_ids
        super().__init__(engine, SingleTurn(), {}, encode, limits)
        self._trainer, self._tools = trainer, list(tools)
        self._environments, self.has_environments = _Environments(environments), bool(environments)
        self._asked: dict[Key, Messages] = {}
        self._conversations: dict[Draw, _Conversation] = {}
        self._graded: Sequence[Draw] = ()
        self._broken: Exception | None = None
        encode([{"role": "tool", "name": trainer.tools[0].__name__, "content": "?"}])

    def question(self, key: Key) -> Messages:
        """Return a prompt with what the environment shows at first.

        Raises:
            ValueError: The environment shows what is no text.
        """
        if key not in self._asked:
            row = self._trainer.train_dataset[key]
            environment = self._environments.take(row)
            self._asked[key] = self._environments.begin(environment, row)
            self._environments.give_back(environment, row)
        return self._asked[key]

    def environment_of(self, key: Key) -> str | None:
        """Return the name of a prompt's environment; None where there is only one."""
        return self._environments.name_of(self._trainer.train_dataset[key])

    def said(self, draws: Iterable[Draw]) -> list[Messages]:
        """Return what model and tools have said in each of some episodes."""
        return [self._conversations[draw].messages for draw in draws]

    def environments(self, draws: Iterable[Draw]) -> list[Any]:
        """Return the environment of each of some episodes, as it was at their end."""
        return [self._conversations[draw].environment for draw in draws]

    def called(self) -> tuple[int, int]:
        """Say how often tools were called in the step, and how many of the calls failed."""
        episodes = self._conversations.values()
        return sum(each.calls for each in episodes), sum(each.failures for each in episodes)

    def release(self, draws: Sequence[Draw]) -> None:
        """Let others have the environments of episodes that are graded.

        That of the last one is kept, until others are graded: on several processes a process that
        has none left to grade grades it again.
        """
        graded, self._graded = [*self._graded, *draws], draws[-1:]
        for draw in graded:
            if draw not in self._graded:
                self._conversations[draw].release()

    def forget(self) -> None:
        """Forget the prompts and episodes of a finished step."""
        for conversation in self._conversations.values():
            conversation.release()
        self._conversations.clear()
        self._asked.clear()
        self._graded = ()

    def wait(self) -> Sequence[Result]:
        """Play until some episodes have ended; [] if there are none.

        Raises:
            ValueError: An environment shows another thing whenever it is reset.
            Exception: What `reset` of an environment raised.
        """
        results = super().wait()
        if self._broken is not None:
            raise self._broken
        return results

    def _begin(self, draw: Draw) -> Any:
        row = self._trainer.train_dataset[draw.key]
        environment = self._environments.take(row)
        conversation = _Conversation(
            self._trainer,
            self._tools_of(environment),
            environment,
            lambda: self._environments.give_back(environment, row),
        )
        self._conversations[draw] = conversation
        try:
            shown = self._environments.begin(environment, row)
            if shown != self.question(draw.key):
                raise ValueError(
                    f"the environment of row {draw.key} shows another thing at each `reset`, "
                    f"{shown[-1]['content']!r:.100} after "
                    f"{self.question(draw.key)[-1]['content']!r:.100}: responses are compared with "
                    "others to the same prompt, so what `reset` returns must depend on its "
                    "arguments alone"
                )
        except Exception as error:
            self._broken = error
            raise
        return conversation

    def _tools_of(self, environment: Any) -> dict[str, Callable[..., Any]]:
        methods = [] if environment is None else _methods_of(environment)
        return {tool.__name__: tool for tool in (*self._tools, *methods)}

    def _answer(self, playing: Playing, said: Completion) -> Turn | Coroutine[Any, Any, Turn]:
        conversation = self._conversations[playing.draw]
        before = [*playing.prompt, *playing.tokens[: len(playing.tokens) - len(said.tokens)]]
        return conversation.hear(said.tokens, before)

    def _end_turn(self, result: Result) -> None:
        """Cut a turn where the episode would be too long; its tokens have been drawn and count."""
        playing = self._of_turn.get(result.draw)
        if playing is not None and isinstance(result, Completion):
            room = self._longest - len(playing.tokens)
            if (excess := len(result.tokens) - room) > 0:
                playing.drawn += excess
                tokens, logprobs = result.tokens[:room], result.logprobs[:room]
                result = replace(result, tokens=tokens, logprobs=logprobs, truncated=True)
        super()._end_turn(result)

    def _end(self, playing: Playing, end: End, reward: float | None, broken_off: int = 0) -> None:
        self._conversations[playing.draw].drop_unread()
        super()._end(playing, end, reward, broken_off)


class _Conversation:
    """One episode: what was said, and the tools that can be called."""

    def __init__(
        self,
        trainer: Any,
        tools: Mapping[str, Callable[..., Any]],
        environment: Any,
        give_back: Callable[[], None],
    ) -> None:
        self._trainer, self._tools = trainer, tools
        self._turns_left = trainer.max_tool_calling_iterations
        self._described = list(tools.values())
        self.environment = environment
        self.messages: Messages = []
        self.calls = self.failures = 0
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        """Let others have the environment; once, for then it may be another episode's."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None

    def hear(
        self, tokens: Sequence[int], before: Sequence[int]
    ) -> Turn | Coroutine[Any, Any, Turn]:
        """Do what the model has asked for.

        Args:
            tokens: What it said.
            before: All tokens before that.
        """
        said = _parsed(self._trainer, tokens, before, self._described)
        self.messages.append(said)
        calls = said.get("tool_calls")
        if not calls or not self._turns_left:
            return Turn(done=True)
        self._turns_left -= 1
        results: list[tuple[str, Any]] = []
        waiting: list[tuple[str, Any]] = []
        for call in calls:
            self._call(call, results, waiting)
        return self._finished(results, waiting) if waiting else self._told(results)

    def drop_unread(self) -> None:
        """Forget what the tools have said last, if the model will not read it."""
        while self.messages and self.messages[-1]["role"] == "tool":
            self.messages.pop()

    def _call(
        self, call: Mapping[str, Any], results: list[tuple[str, Any]], waiting: list[Any]
    ) -> None:
        self.calls += 1
        function = call.get("function") or {}
        name = function.get("name", call.get("name", "unknown"))
        try:
            if call["type"] != "function":
                raise ValueError(f"Unsupported tool call type: {call['type']}")
            if name not in self._tools:
                raise ValueError(f"Tool {name} not found.")
            result = self._tools[name](**function["arguments"])
        except Exception as error:  # a tool may raise anything; the model is told, as TRL does
            self.failures += 1
            results.append((name, {"error": str(error)}))
            return
        (waiting if inspect.isawaitable(result) else results).append((name, result))

    async def _finished(self, results: list[tuple[str, Any]], waiting: list[Any]) -> Turn:
        """Wait for tools, on the event loop that TRL runs them on."""

        async def together() -> Any:
            return await asyncio.gather(*(each for _, each in waiting), return_exceptions=True)

        future = asyncio.run_coroutine_threadsafe(together(), self._trainer.async_loop)
        for (name, _), found in zip(waiting, await asyncio.wrap_future(future), strict=True):
            failed = isinstance(found, Exception)
            self.failures += failed
            results.append((name, {"error": str(found)} if failed else found))
        return self._told(results)

    def _told(self, results: Iterable[tuple[str, Any]]) -> Turn:
        told = [{"role": "tool", "name": name, "content": str(result)} for name, result in results]
        self.messages += told
        return Turn(told)


class _Environments:
    """TRL's environments: each is one draw's at a time, and is reset for the next."""

    def __init__(self, factory: Any) -> None:
        self._several = isinstance(factory, Mapping)
        self._factories: Mapping[str | None, Callable[[], Any]] = (
            factory if self._several else {None: factory}
        )
        self._free: dict[str | None, list[Any]] = {name: [] for name in self._factories}

    def name_of(self, row: Row) -> str | None:
        """Return the name of a row's environment.

        Raises:
            ValueError: There is none of this name.
        """
        name = row.get("environment") if self._several else None
        if name not in self._factories:
            raise ValueError(
                f"a row has environment={name!r}, and environment_factory has "
                f"{', '.join(map(repr, self._factories))}"
            )
        return name

    def take(self, row: Row) -> Any:
        """Return a free environment for a row; None if there are no environments."""
        name = self.name_of(row)
        if self._factories[name] is None:
            return None
        return self._free[name].pop() if self._free[name] else self._factories[name]()

    def give_back(self, environment: Any, row: Row) -> None:
        """Free an environment that was taken for a row."""
        if environment is not None:
            self._free[self.name_of(row)].append(environment)

    def begin(self, environment: Any, row: Row) -> Messages:
        """Reset an environment, and return the prompt with what it shows."""
        prompt: Messages = row.get("prompt") or [{"role": "user", "content": ""}]
        if environment is None:
            return prompt
        arguments = {k: v for k, v in row.items() if k != "environment" or not self._several}
        shown = environment.reset(**arguments)
        if shown is None:
            return prompt
        if not isinstance(shown, str):
            raise ValueError(f"`reset` of an environment must return a text, got {shown!r:.100}")
        last = prompt[-1]
        return [*prompt[:-1], {**last, "content": last["content"] + shown}]


def cannot_parse() -> str:
    """Say why the installed TRL cannot parse calls of tools; empty if it can.

    The parser of newer releases of transformers needs to know what comes before a turn. Earlier
    releases of TRL do not say so, and take what cannot be parsed for text.
    """
    parser = getattr(PreTrainedTokenizerBase, "parse_response", None)
    needs = parser is not None and "prefix" in inspect.signature(parser).parameters
    if not needs or "prefix" in inspect.signature(parse_response).parameters:
        return ""
    return (
        f"with transformers {transformers.__version__}, tools and environment_factory need a newer "
        f"TRL than {trl.__version__}, by which every call of a tool would be read as text"
    )


def _methods_of(environment: Any) -> list[Callable[..., Any]]:
    """List the methods of an environment that the model can call."""
    names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
    public = [name for name in names if name not in NOT_TOOLS and not name.startswith("_")]
    return [getattr(environment, name) for name in public]


def _parsed(
    trainer: Any, tokens: Sequence[int], before: Sequence[int], tools: Sequence[Any]
) -> dict[str, Any]:
    """Parse a turn as TRL does; early releases do not look at what came before."""
    known = {"prefix": list(before), "tools": list(tools)}
    taken = inspect.signature(parse_response).parameters
    further = {name: value for name, value in known.items() if name in taken}
    said: dict[str, Any] = parse_response(trainer.processing_class, list(tokens), **further)
    return said
