"""Episodes by any engine: the engine draws each turn, an environment answers it."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.engines.engine import Engine
from rollwise.environments.episodes import (
    EpisodeEnvironment,
    Message,
    Opening,
    Play,
    Turn,
    checked_turn,
)
from rollwise.errors import PluginError, one_line
from rollwise.plugins import raised_in_plugin, wrong_result
from rollwise.sampling import Draw
from rollwise.sampling.draws import Key, hash_index
from rollwise.step.response import LostDraw, Response
from rollwise.step.session import checked_response

log = logging.getLogger(__name__)

Encode = Callable[[str | Sequence[Message]], Sequence[int]]
"""What an environment says -> the tokens that follow the model's turn."""

EncodePrompt = Callable[[Sequence[Message]], Sequence[int]]
"""A conversation -> its tokens, up to the start of the model's turn."""


@dataclass(frozen=True)
class EpisodeLimits:
    """Where an episode is cut.

    Attributes:
        turns: The most turns of the model.
        tokens: No turn begins once the episode has this many, the environment's included.
        context: The most tokens of prompt and episode; infinite if unknown.
        turn_tokens: The most tokens of a turn, which the context must have room for; None if
            unknown.
    """

    turns: int = 16
    tokens: int = 8192
    context: float = math.inf
    turn_tokens: int | None = None


@dataclass(eq=False)
class _Row:
    """What followed one prompt; log-probabilities are known unless a turn came without them."""

    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[NDArray[np.float32]] = field(default_factory=list)
    is_known: bool = True

    def add(self, tokens: Sequence[int], logprobs: NDArray[np.float32] | None) -> None:
        """Add a turn of the model's, or, without log-probabilities, of the environment's."""
        self.tokens += tokens
        self.mask += [logprobs is not None] * len(tokens)
        self.is_known &= logprobs is None or len(logprobs) == len(tokens)
        self.logprobs.append(np.zeros(len(tokens), np.float32) if logprobs is None else logprobs)

    def response(self, **more: Any) -> Response:
        mask = None if all(self.mask) else np.array(self.mask)
        known = self.is_known and self.logprobs
        logprobs = np.concatenate(self.logprobs) if known else np.zeros(0, np.float32)
        return Response(self.tokens, logprobs, mask=mask, **more)


@dataclass(eq=False)
class _Episode:
    """An episode under way."""

    draw: Draw
    rows: list[_Row]  # one for each prompt that the model was given; the last one still grows
    drawn: int = 0  # tokens of the model
    turns: int = 0
    said: list[str] = field(default_factory=list)  # by both sides, for people
    text: str = ""  # what the model said last
    play: Play | None = None

    def response(self, truncated: bool, reward: float | None, failed: bool = False) -> Response:
        first, *others = self.rows
        return first.response(
            text=self.text,
            truncated=truncated,
            branches=[(row.prompt, row.response()) for row in others],
            turns=self.turns,
            failed=failed,
            reward=reward,
            transcript="\n".join(self.said),
        )


class EpisodeEngine(Engine):
    """Plays draws as episodes: an engine that wraps the one that draws the turns.

    A turn is drawn from the whole context, the prompt and all that was said, so an engine that
    caches prefixes reuses them. The first turn has the draw's own seed, each later turn one hashed
    from it. An episode holds a slot from its first turn to its end. Closing this engine closes the
    inner one.

    Args:
        engine: Draws the turns.
        environment: Answers them.
        problems: Each prompt's `messages` and `answer`, by key.
        encode: Turns what an environment says into tokens.
        encode_prompt: Turns a conversation into tokens, for environments that start over
            (`Turn.anew`).
        limits: Where episodes are cut.
    """

    def __init__(
        self,
        engine: Engine,
        environment: EpisodeEnvironment,
        problems: Mapping[Key, Any],
        encode: Encode,
        encode_prompt: EncodePrompt,
        limits: EpisodeLimits | None = None,
    ) -> None:
        self._engine, self._environment, self._problems = engine, environment, problems
        self._encode, self._encode_prompt = encode, encode_prompt
        self._limits = limits or EpisodeLimits()
        self._playing: set[int] = set()  # the ids of what answers the episodes under way
        self._failures: set[type[Exception]] = set()
        self._free = asyncio.Semaphore(engine.slots) if engine.slots else nullcontext()

    @property
    def slots(self) -> int | None:  # type: ignore[override]
        return self._engine.slots

    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Response:
        """Let model and environment take turns until one of them, or a limit, ends the episode."""
        episode = _Episode(draw, [_Row(prompt)])
        async with self._free:
            try:
                return await self._played(episode)
            except LostDraw as lost:
                drawn = episode.drawn + lost.tokens
                raise LostDraw(lost.reason, drawn, lost.final) from None
            except asyncio.CancelledError:
                raise LostDraw("it was cancelled", episode.drawn) from None
            finally:
                self._leave(episode)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self._engine.load_weights(weights)

    def sleep(self) -> None:
        self._engine.sleep()

    @property
    def lost_tokens(self) -> int:  # type: ignore[override]
        """See base class."""
        return self._engine.lost_tokens

    def limit_slots(self, slots: int) -> None:
        self._engine.limit_slots(slots)

    def ignore_ends(self) -> bool:
        return self._engine.ignore_ends()

    def close(self) -> None:
        self._engine.close()

    async def _played(self, episode: _Episode) -> Response:
        context, reward = episode.rows[0].prompt, 0.0
        while True:
            cut = (await self._draw_turn(episode, context)).truncated
            try:
                turn = await self._answer(episode)
                if turn.reward is not None:
                    reward = _finite(turn.reward)
                if turn.done:
                    return episode.response(cut, None if turn.reward is None else reward)
                following = None
                if not cut and episode.turns < self._limits.turns:
                    following = self._context_after(episode, turn)
            except (PluginError, LostDraw):
                raise
            except Exception as error:  # an environment may raise anything; the episode is data
                self._log_failure(error)
                return episode.response(False, 0.0, failed=True)
            if following is None:
                return episode.response(True, reward)
            context = following

    async def _draw_turn(self, episode: _Episode, context: Sequence[int]) -> Response:
        """Have the engine draw what the model says next."""
        turn = draw = episode.draw
        if episode.turns:
            key = f"{draw.key}\x1f{draw.index}\x1f{episode.turns}"
            seed = hash_index(f"{draw.seed}\x1fturn\x1f", episode.turns)
            turn = Draw(key, draw.index, seed)
        episode.turns += 1
        found = await self._engine.complete(turn, context)
        reply = checked_response(self._engine, found, self._limits.turn_tokens or math.inf)
        episode.text = reply.text
        episode.drawn += len(reply.tokens)
        episode.said.append(reply.text)
        episode.rows[-1].add(reply.tokens, np.asarray(reply.logprobs, np.float32))
        return reply

    async def _answer(self, episode: _Episode) -> Turn:
        """Have the environment answer what the model said last."""
        if episode.play is None:
            episode.play = self._begin(episode.draw)
        answer = episode.play.step(episode.text)
        return checked_turn(episode.play, await answer if isawaitable(answer) else answer)

    def _begin(self, draw: Draw) -> Play:
        problem = self._problems[draw.key]
        seed = hash_index(f"{draw.seed}\x1fenvironment", 0)
        play = self._environment.begin(Opening(problem.messages, problem.answer, seed))
        if isinstance(play, type) or not hasattr(play, "step"):
            raise wrong_result(self._environment, "begin", "an object with `step`", play)
        if id(play) in self._playing:
            due = "a new object for each episode, not one already in use"
            raise wrong_result(self._environment, "begin", due, play)
        self._playing.add(id(play))
        return play

    def _context_after(self, episode: _Episode, turn: Turn) -> list[int] | None:
        """Add what the environment says; returns the next context, None if there is no room."""
        said, tokens, limits = turn.says, list[int](), self._limits
        if turn.anew is not None:
            said, context = turn.anew, list(self._encode_prompt(turn.anew))
        else:
            tokens = list(self._encode(said))
            row = episode.rows[-1]
            context = [*row.prompt, *row.tokens, *tokens]
        too_long = len(context) + (limits.turn_tokens or 1) > limits.context
        length = sum(len(row.tokens) for row in episode.rows)
        if too_long or length + len(tokens) >= limits.tokens:
            return None
        if turn.anew is not None:
            episode.rows.append(_Row(context))
        elif tokens:
            episode.rows[-1].add(tokens, None)
        if said:
            text = said if isinstance(said, str) else "\n".join(m["content"] for m in said)
            episode.said.append(text)
        return context

    def _log_failure(self, error: Exception) -> None:
        if type(error) not in self._failures:
            self._failures.add(type(error))
            message = "an episode failed: %s (more of this kind are only counted)"
            log.warning(message, raised_in_plugin(error) or one_line(error))

    def _leave(self, episode: _Episode) -> None:
        """Close what answered an episode."""
        self._playing.discard(id(episode.play))
        try:
            getattr(episode.play, "close", lambda: None)()
        except Exception as error:  # an environment may raise anything; the episode is over
            log.warning(
                "an episode of %r could not be closed: %s", episode.draw.key, one_line(error)
            )


def _finite(reward: Any) -> float:
    if not math.isfinite(reward):
        raise ValueError(f"a reward must be finite, got {reward}")
    return float(reward)
