"""Episodes by any engine: the engine draws each turn, an environment answers it."""

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from rollwise.engines.engine import Engine
from rollwise.engines.environment_loop import EnvironmentLoop
from rollwise.engines.episode_state import EpisodeLimits, Playing
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
"""A conversation -> its tokens, with which the model's turn begins."""


class EpisodeEngine(Engine):
    """Plays draws as episodes: an engine too, around one that draws the turns.

    A turn is drawn from the whole context, the prompt and all that was said, so an engine that
    caches prefixes reuses them. The first turn has the draw's own seed, each later one its own,
    hashed from it. An episode has a slot from its first turn to its end. Closing this engine closes
    the one within.

    Args:
        engine: Draws the turns.
        environment: Answers them.
        problems: Each prompt's `messages` and `answer`, by key.
        encode: Turns what an environment says into tokens.
        encode_prompt: Turns a conversation into tokens, for environments that begin anew
            (`Turn.anew`).
        limits: Where episodes are cut. Seconds are looked at when the engine or an environment
            reports something, and, if the engine can be interrupted, once an episode's are over.
        clock: Returns seconds.
    """

    def __init__(
        self,
        engine: Engine,
        environment: EpisodeEnvironment,
        problems: Mapping[Key, Any],
        encode: Encode,
        encode_prompt: EncodePrompt,
        limits: EpisodeLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._environment, self._problems = engine, environment, problems
        self._encode, self._encode_prompt = encode, encode_prompt
        self._limits, self._clock = limits or EpisodeLimits(), clock
        self._environment_loop = EnvironmentLoop(engine.interrupt)
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
            self._take_answers(wait=0.0)  # so that the engine has all turns that can be drawn
            self._fill()
            if self._results:
                break
            if self._of_turn:
                results, most = self._engine.wait(), self._limits.turn_tokens or math.inf
                for result in checked_results(self._engine, results, most):
                    self._end_turn(result)
            elif self._playing:
                self._take_answers(wait=self._time_left())
            else:
                return []
            self._cut_overdue()
        results, self._results = self._results, []
        return results

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws; returns the tokens drawn in all turns of those under way."""
        tokens, turns = 0, list[Draw]()
        for draw in draws:
            self._waiting.pop(draw, None)
            if (playing := self._playing.get(draw)) is not None:
                self.cancelled += 1
                tokens += playing.drawn
                turns += self._leave(playing)
        return tokens + self._cancel_in_engine(turns)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self._engine.load_weights(weights)

    def sleep(self) -> None:
        self._engine.sleep()

    def ignore_ends(self) -> bool:
        return self._engine.ignore_ends()

    def close(self) -> None:
        for playing in list(self._playing.values()):
            self._leave(playing)
        try:
            self._environment_loop.close()
        finally:
            self._engine.close()

    def _fill(self) -> None:
        free, elsewhere = self._engine.free_slots, len(self._playing) - len(self._of_turn)
        count = len(self._waiting) if free is None else max(0, free - elsewhere)
        for draw in list(itertools.islice(self._waiting, count)):
            prompt = self._waiting.pop(draw)
            self._playing[draw] = playing = Playing(draw, [(prompt, [])], self._clock())
            if self._limits.seconds is not None:
                # The engine reports then, whatever it draws.
                self._environment_loop.interrupt_after(self._limits.seconds)
            self._begin_turn(playing, draw, prompt)

    def _begin_turn(self, playing: Playing, turn: Draw, context: Sequence[int]) -> None:
        playing.turn, playing.answering = turn, None
        playing.turns += 1
        self._of_turn[turn] = playing
        self._engine.submit([turn], {turn.key: context})

    def _end_turn(self, result: Result) -> None:
        """Hand what the model said to the environment."""
        playing = self._of_turn.pop(result.draw, None)
        if playing is None:  # of an episode that has ended
            return
        playing.turn = None
        if isinstance(result, LostDraw):
            self._lose(playing, result.reason, result.tokens)
            return
        if not isinstance(result, Completion):
            raise wrong_result(self._engine, "wait", "completions, for turns of episodes", result)
        playing.last = result
        playing.drawn += len(result.tokens)
        playing.said.append(result.text)
        playing.rows[-1][1].append(Span(result.tokens, result.logprobs))
        try:
            if playing.play is None:
                playing.play = self._begin(playing.draw)
            answer = playing.play.step(result.text)
        except PluginError:
            raise
        except Exception as error:  # an environment may raise anything; the episode is data
            self._fail(playing, error)
            return
        if isawaitable(answer):
            self._environment_loop.expect(playing, answer)
        else:
            self._take(playing, answer)

    def _begin(self, draw: Draw) -> Play:
        problem = self._problems[draw.key]
        seed = hash_index(f"{draw.seed}\x1fenvironment", 0)
        play = self._environment.begin(Opening(problem.messages, problem.answer, seed))
        if isinstance(play, type) or not hasattr(play, "step"):
            due = "an object with `step`"
            raise wrong_result(self._environment, "begin", due, play)
        if any(other.play is play for other in self._playing.values()):
            due = "an object of its own for each episode, not that of another one under way"
            raise wrong_result(self._environment, "begin", due, play)
        return play

    def _take_answers(self, wait: float | None) -> None:
        """Take what environments have answered; wait so many seconds for the first of them."""
        for playing, answer in self._environment_loop.take(wait):
            try:
                turn = answer.result()
            except Exception as error:
                self._fail(playing, error)
            else:
                self._take(playing, turn)

    def _take(self, playing: Playing, turn: object) -> None:
        """Go on with what an environment has answered, or end the episode."""
        turn = checked_turn(playing.play, turn)
        if turn.reward is not None:
            if not math.isfinite(turn.reward):
                self._fail(playing, ValueError(f"a reward must be finite, got {turn.reward}"))
                return
            playing.reward = float(turn.reward)
        cut = playing.last is not None and playing.last.truncated
        if turn.done:
            self._end(playing, "truncated" if cut else "done", turn.reward)
        elif cut or playing.turns >= self._limits.turns or self._is_overdue(playing):
            self._end(playing, "truncated", playing.reward)
        else:
            self._continue(playing, turn)

    def _continue(self, playing: Playing, turn: Turn) -> None:
        """Begin the next turn, unless there is no room for it."""
        said = turn.says if turn.anew is None else turn.anew
        try:
            if turn.anew is None:
                tokens = list(self._encode(turn.says))
                context = [*playing.context, *tokens]
            else:
                tokens, context = [], list(self._encode_prompt(turn.anew))
            text = said if isinstance(said, str) else "\n".join(m["content"] for m in said)
        except Exception as error:  # a chat template may refuse what an environment says
            self._fail(playing, error)
            return
        limits = self._limits
        too_long = len(context) + (limits.turn_tokens or 1) > limits.context
        if too_long or playing.length + len(tokens) >= limits.tokens:
            self._end(playing, "truncated", playing.reward)
            return
        if turn.anew is not None:
            playing.rows.append((context, []))
        elif tokens:
            playing.rows[-1][1].append(Span(tokens))
        if turn.anew is not None or tokens:
            playing.said.append(text)
        draw = playing.draw
        key = f"{draw.key}\x1f{draw.index}\x1f{playing.turns}"
        begun = Draw(key, draw.index, hash_index(f"{draw.seed}\x1fturn\x1f", playing.turns))
        self._begin_turn(playing, begun, context)

    def _end(self, playing: Playing, end: End, reward: float | None, broken_off: int = 0) -> None:
        usage = Usage(playing.drawn + broken_off, playing.turns, self._clock() - playing.began)
        self._leave(playing)
        self._results.append(
            PlayedEpisode(
                spans=tuple(playing.rows[0][1]),
                branches=[(prompt, tuple(spans)) for prompt, spans in playing.rows[1:]],
                usage=usage,
                end=end,
                reward=reward,
                draw=playing.draw,
                text=playing.last.text if playing.last is not None else "",
                transcript="\n".join(playing.said),
            )
        )

    def _fail(self, playing: Playing, error: Exception) -> None:
        if isinstance(error, EpisodeLost):
            self._lose(playing, one_line(error))
            return
        if type(error) not in self._failures:
            self._failures.add(type(error))
            message = "an episode failed: %s (more of this kind are only counted)"
            log.warning(message, raised_in_plugin(error) or one_line(error))
        self._end(playing, "failed", 0.0)

    def _lose(self, playing: Playing, reason: str, broken_off: int = 0) -> None:
        self._leave(playing)
        self._results.append(LostDraw(playing.draw, reason, playing.drawn + broken_off))

    def _leave(self, playing: Playing) -> list[Draw]:
        """Forget an episode, and close it; returns its turn if that is in the engine."""
        del self._playing[playing.draw]
        turn, playing.turn = playing.turn, None
        if playing.answering is not None:
            playing.answering.cancel()
            playing.answering = None
        try:
            getattr(playing.play, "close", lambda: None)()
        except Exception as error:  # an environment may raise anything; the episode is over
            key = playing.draw.key
            log.warning("an episode of %r could not be closed: %s", key, one_line(error))
        if turn is None:
            return []
        del self._of_turn[turn]
        return [turn]

    def _is_overdue(self, playing: Playing) -> bool:
        seconds = self._limits.seconds
        return seconds is not None and self._clock() - playing.began >= seconds

    def _time_left(self) -> float | None:
        """Seconds until the first episode is overdue; None if none can be."""
        if self._limits.seconds is None:
            return None
        first = min(playing.began for playing in self._playing.values())
        return max(0.01, first + self._limits.seconds - self._clock())

    def _cut_overdue(self) -> None:
        """End episodes whose time is over, in the middle of a turn or of an answer."""
        if self._limits.seconds is None:
            return
        for playing in [p for p in self._playing.values() if self._is_overdue(p)]:
            broken_off = self._cancel_in_engine([playing.turn] if playing.turn else [])
            self._end(playing, "truncated", playing.reward, broken_off)

    def _cancel_in_engine(self, turns: Sequence[Draw]) -> int:
        return checked_tokens(self._engine, self._engine.cancel(turns)) if turns else 0
