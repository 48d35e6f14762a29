"""Episodes by any engine: the engine draws each turn, an environment answers it."""

import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from rollwise.engines.asynchronous import LoopThread
from rollwise.engines.engine import Engine
from rollwise.environments.episodes import (
    EpisodeEnvironment,
    EpisodeLost,
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
from rollwise.step.episodes import End, Span, Usage
from rollwise.step.outcomes import Completion, LostDraw, PlayedEpisode, Prompts, Result
from rollwise.step.session import checked_results, checked_tokens

log = logging.getLogger(__name__)

Encode = Callable[[str | Sequence[Message]], Sequence[int]]
"""What an environment says -> the tokens that follow the model's turn."""

EncodePrompt = Callable[[Sequence[Message]], Sequence[int]]
"""A conversation -> its tokens, up to the start of the model's turn."""

Course = Generator[Any, Any, tuple[End, float | None]]
"""An episode from its first turn to its end and reward. Yields what it waits for: a context
or an awaitable, and is then sent the completion or the answer."""


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
class Playing:
    """An episode under way."""

    draw: Draw
    # Each prompt that the model was given, with what followed it; the last one is still growing.
    rows: list[tuple[Sequence[int], list[Span]]]
    drawn: int = 0  # tokens of the model
    said: list[str] = field(default_factory=list)  # by both sides, for people
    turns: int = 0
    text: str = ""  # what the model said last
    play: Play | None = None
    turn: Draw | None = None  # the one that is being drawn
    answering: Future[Turn] | None = None  # what an environment is about to answer
    course: Course = field(init=False)


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
        self._thread: LoopThread | None = None  # of environments whose answers are awaited
        self._waiting: dict[Draw, Sequence[int]] = {}
        self._playing: dict[Draw, Playing] = {}
        self._of_turn: dict[Draw, Playing] = {}
        self._results: list[Result] = []
        self._failures: set[type[Exception]] = set()

    @property
    def free_slots(self) -> int | None:
        """Slots of the engine that neither an episode nor a waiting draw needs."""
        free = self._engine.free_slots
        needed = len(self._playing) - len(self._of_turn) + len(self._waiting)
        return None if free is None else max(0, free - needed)

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        self._waiting.update((draw, prompts[draw.key]) for draw in draws)
        self._fill()

    def wait(self) -> Sequence[Result]:
        while True:
            self._take_answers(block=False)  # so that the engine has all turns that can be drawn
            self._fill()
            if self._results:
                break
            if self._of_turn:
                results, most = self._engine.wait(), self._limits.turn_tokens or math.inf
                for result in checked_results(self._engine, results, most):
                    self._end_turn(result)
            elif self._playing:
                self._take_answers(block=True)
            else:
                return []
        results, self._results = self._results, []
        return results

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws; returns the tokens drawn in all turns of those under way."""
        tokens, turns = 0, list[Draw]()
        for draw in draws:
            self._waiting.pop(draw, None)
            if draw in self._playing:
                tokens += self._playing[draw].drawn
                turns += self._leave(draw)
        drawn = checked_tokens(self._engine, self._engine.cancel(turns)) if turns else 0
        return tokens + drawn

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self._engine.load_weights(weights)

    def sleep(self) -> None:
        self._engine.sleep()

    def ignore_ends(self) -> bool:
        return self._engine.ignore_ends()

    def close(self) -> None:
        for draw in list(self._playing):
            self._leave(draw)
        if self._thread is not None:
            self._thread.stop()
        self._thread = None
        self._engine.close()

    def _fill(self) -> None:
        free, elsewhere = self._engine.free_slots, len(self._playing) - len(self._of_turn)
        count = len(self._waiting) if free is None else max(0, free - elsewhere)
        for draw in list(itertools.islice(self._waiting, count)):
            playing = Playing(draw, [(self._waiting.pop(draw), [])])
            playing.course, self._playing[draw] = self._course(playing), playing
            self._go_on(playing, lambda: None)

    def _course(self, playing: Playing) -> Course:
        """Let model and environment take turns until one of them, or a limit, ends the episode."""
        reward, context = 0.0, playing.rows[0][0]
        while True:
            reply: Completion = yield context
            if playing.play is None:
                playing.play = self._begin(playing.draw)
            answer = playing.play.step(reply.text)
            turn = checked_turn(playing.play, (yield answer) if isawaitable(answer) else answer)
            if turn.reward is not None:
                if not math.isfinite(turn.reward):
                    raise ValueError(f"a reward must be finite, got {turn.reward}")
                reward = float(turn.reward)
            if turn.done:
                return "truncated" if reply.truncated else "done", turn.reward
            if reply.truncated or playing.turns >= self._limits.turns:
                return "truncated", reward
            if (following := self._context_after(playing, turn)) is None:
                return "truncated", reward
            context = following

    def _begin(self, draw: Draw) -> Play:
        problem = self._problems[draw.key]
        seed = hash_index(f"{draw.seed}\x1fenvironment", 0)
        play = self._environment.begin(Opening(problem.messages, problem.answer, seed))
        if isinstance(play, type) or not hasattr(play, "step"):
            raise wrong_result(self._environment, "begin", "an object with `step`", play)
        if any(other.play is play for other in self._playing.values()):
            due = "a new object for each episode, not one already in use"
            raise wrong_result(self._environment, "begin", due, play)
        return play

    def _context_after(self, playing: Playing, turn: Turn) -> list[int] | None:
        """Add what the environment says; returns the next context, None if there is no room."""
        said, tokens, limits = turn.says, list[int](), self._limits
        if turn.anew is not None:
            said, context = turn.anew, list(self._encode_prompt(turn.anew))
        else:
            tokens = list(self._encode(said))
            prompt, spans = playing.rows[-1]
            context = [*prompt, *(token for span in spans for token in span.tokens), *tokens]
        too_long = len(context) + (limits.turn_tokens or 1) > limits.context
        length = sum(len(span.tokens) for _, spans in playing.rows for span in spans)
        if too_long or length + len(tokens) >= limits.tokens:
            return None
        if turn.anew is not None:
            playing.rows.append((context, []))
        elif tokens:
            playing.rows[-1][1].append(Span(tokens))
        if said:
            text = said if isinstance(said, str) else "\n".join(m["content"] for m in said)
            playing.said.append(text)
        return context

    def _go_on(self, playing: Playing, given: Callable[[], Any]) -> None:
        """Give an episode what it waits for; then start what it waits for next, or end it."""
        draw = playing.draw
        try:
            wanted = playing.course.send(given())
        except StopIteration as ended:
            self._end(playing, *ended.value)
        except PluginError:
            raise
        except EpisodeLost as error:
            self._lose(playing, one_line(error))
        except Exception as error:  # an environment may raise anything; the episode is data
            self._fail(playing, error)
        else:
            if isawaitable(wanted):
                self._thread = self._thread or LoopThread("environment")
                playing.answering = self._thread.begin(_answer(wanted))
                return
            playing.turn = draw
            if playing.turns:
                key = f"{draw.key}\x1f{draw.index}\x1f{playing.turns}"
                seed = hash_index(f"{draw.seed}\x1fturn\x1f", playing.turns)
                playing.turn = Draw(key, draw.index, seed)
            playing.turns += 1
            self._of_turn[playing.turn] = playing
            self._engine.submit([playing.turn], {playing.turn.key: wanted})

    def _end_turn(self, result: Result) -> None:
        """Hand what the model said to its episode."""
        playing = self._of_turn.pop(result.draw, None)
        if playing is None:  # of an episode that has ended
            return
        playing.turn = None
        if isinstance(result, LostDraw):
            self._lose(playing, result.reason, result.tokens)
            return
        if not isinstance(result, Completion):
            raise wrong_result(self._engine, "wait", "completions, for turns of episodes", result)
        playing.text = result.text
        playing.drawn += len(result.tokens)
        playing.said.append(result.text)
        playing.rows[-1][1].append(Span(result.tokens, result.logprobs))
        self._go_on(playing, lambda: result)

    def _take_answers(self, block: bool) -> None:
        """Take what environments have answered; with `block`, wait for the first answer."""
        awaited = {p.answering: p for p in self._playing.values() if p.answering is not None}
        done, _ = wait(awaited, None if block else 0, FIRST_COMPLETED)
        for answer, playing in awaited.items():
            if answer in done:
                playing.answering = None
                self._go_on(playing, answer.result)

    def _end(self, playing: Playing, end: End, reward: float | None) -> None:
        self._leave(playing.draw)
        self._results.append(
            PlayedEpisode(
                spans=tuple(playing.rows[0][1]),
                branches=[(prompt, tuple(spans)) for prompt, spans in playing.rows[1:]],
                usage=Usage(playing.drawn, playing.turns),
                end=end,
                reward=reward,
                draw=playing.draw,
                text=playing.text,
                transcript="\n".join(playing.said),
            )
        )

    def _fail(self, playing: Playing, error: Exception) -> None:
        if type(error) not in self._failures:
            self._failures.add(type(error))
            message = "an episode failed: %s (more of this kind are only counted)"
            log.warning(message, raised_in_plugin(error) or one_line(error))
        self._end(playing, "failed", 0.0)

    def _lose(self, playing: Playing, reason: str, broken_off: int = 0) -> None:
        self._leave(playing.draw)
        self._results.append(LostDraw(playing.draw, reason, playing.drawn + broken_off))

    def _leave(self, draw: Draw) -> list[Draw]:
        """Forget an episode, and close it; returns its turn if that is in the engine."""
        playing = self._playing.pop(draw)
        if playing.answering is not None:
            playing.answering.cancel()
        try:
            getattr(playing.play, "close", lambda: None)()
        except Exception as error:  # an environment may raise anything; the episode is over
            log.warning("an episode of %r could not be closed: %s", draw.key, one_line(error))
        if playing.turn is None:
            return []
        del self._of_turn[playing.turn]
        return [playing.turn]


async def _answer(answer: Awaitable[Turn]) -> Turn:
    return await answer
