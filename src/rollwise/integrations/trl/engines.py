"""The engines of `AdaptiveGRPOTrainer`: TRL's own, and one shared by several processes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwise.engines import Completion, Engine, LostDraw
from rollwise.engines.settings import end_tokens
from rollwise.sampling import Draw
from rollwise.step.outcomes import Outcome, Prompts, Result


@dataclass(frozen=True)
class Graded:
    """What TRL's reward functions say of a response.

    Attributes:
        rewards: One for each function, NaN where it abstains.
        logged: What they wrote by TRL's `log_extra`, by column.
    """

    rewards: Sequence[float]
    logged: Mapping[str, Any]


Grade = Callable[[Sequence[Outcome]], Sequence[Graded]]

Gather = Callable[[list[Any]], list[Any]]
"""Concatenates the lists of all processes, in the order of the processes."""


class TRLEngine(Engine):
    """Generates with TRL: vLLM, `generate` or continuous batching, with TRL's settings.

    The draws' seeds are not used: random numbers are those of the process, or of vLLM.

    Args:
        trainer: A `GRPOTrainer`.
        batch_size: Responses generated at a time; None leaves that to the backend.
    """

    free_slots = None

    def __init__(self, trainer: Any, batch_size: int | None) -> None:
        self._trainer, self._batch_size = trainer, batch_size
        self._tokenizer = trainer.processing_class
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._end_tokens = end_tokens(model.generation_config, self._tokenizer)
        self._waiting: dict[Draw, Sequence[int]] = {}

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws."""
        self._waiting.update((draw, prompts[draw.key]) for draw in draws)

    def wait(self) -> Sequence[Completion | LostDraw]:
        """Complete all waiting draws."""
        draws, prompts = list(self._waiting), list(self._waiting.values())
        self._waiting.clear()
        size = self._batch_size or max(len(draws), 1)
        completions: list[Completion] = []
        for start in range(0, len(draws), size):
            part = slice(start, start + size)
            completions += self._complete(draws[part], [list(ids) for ids in prompts[part]])
        return completions

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws that have not started; none of their tokens has been drawn."""
        for draw in draws:
            self._waiting.pop(draw, None)
        return 0

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Do nothing: TRL updates the weights of its own generation."""

    def _complete(self, draws: list[Draw], prompts: list[list[int]]) -> Iterator[Completion]:
        generate = self._by_vllm if self._trainer.use_vllm else self._by_transformers
        responses, logprobs = generate(prompts)
        texts = self._tokenizer.batch_decode(responses, skip_special_tokens=True)
        for draw, tokens, logprob, text in zip(draws, responses, logprobs, texts, strict=True):
            cut = not tokens or tokens[-1] not in self._end_tokens
            yield Completion(draw, list(tokens), np.array(logprob, np.float32), text, cut)

    def _by_vllm(self, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
        """Draw one response for each row; with a larger number, TRL would skip rows."""
        trainer = self._trainer
        if trainer.state.global_step != trainer._last_loaded_step:
            trainer.vllm_generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
        found = trainer.vllm_generation.generate(prompts=prompts, images=None, num_generations=1)
        # Each token has a list of log-probabilities, its own first; None where vLLM has none.
        return found[1], [[np.nan if t[0] is None else t[0] for t in row] for row in found[2]]

    def _by_transformers(
        self, prompts: list[list[int]]
    ) -> tuple[list[list[int]], list[list[float]]]:
        responses = self._trainer._generate_single_turn(prompts, None, {}, num_generations=1)[0]
        return responses, [[] for _ in responses]


class SharedEngine(Engine):
    """Splits draws over processes: each draws and grades its share, and receives all results.

    Every process submits the same draws and gets the same completions, so that equal sessions
    stay equal. All processes have equally many rows to generate and to grade at any time, which
    TRL's collective operations need. Where the shares differ, some rows are done twice and counted
    once; those no longer needed are dropped at the end of the step. A response on which every
    reward function abstains is lost, as TRL leaves it out.

    Args:
        engine: This process's engine.
        grade: Called in all processes at once, with equally many responses.
        gather: Concatenates lists over the processes.
        rank: This process's number.
        ranks: How many there are.

    Attributes:
        graded: Draw -> what the reward functions say of it, since the last `forget`.
    """

    def __init__(
        self, engine: Engine, grade: Grade, gather: Gather, rank: int = 0, ranks: int = 1
    ) -> None:
        self._engine, self._grade, self._gather = engine, grade, gather
        self._rank, self._ranks = rank, ranks
        self._in_flight: set[Draw] = set()
        self._own: set[Draw] = set()
        self._spare: Outcome | None = None
        self.graded: dict[Draw, Graded] = {}

    @property
    def free_slots(self) -> int | None:
        """The free slots of all processes; None if the engines have no limit."""
        slots = self._engine.free_slots
        return None if slots is None else sum(self._gather([slots]))

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws; they must be the same in all processes."""
        if not draws:
            return
        self._in_flight.update(draws)
        rows = -(-len(draws) // self._ranks)
        own = [draws[(self._rank + i * self._ranks) % len(draws)] for i in range(rows)]
        self._own.update(own)
        self._engine.submit(own, prompts)

    def wait(self) -> Sequence[Result]:
        """Return what is done in all processes; [] if nothing is in flight in any."""
        while True:
            own = [found for found in self._engine.wait() if not isinstance(found, LostDraw)]
            self._own.difference_update(found.draw for found in own)
            everything = self._gather(list(zip(own, self._grade_together(own), strict=True)))
            fresh: list[Result] = []
            for completion, graded in everything:
                draw = completion.draw
                if draw in self._in_flight:  # else another process was faster
                    self._in_flight.remove(draw)
                    self.graded[draw] = graded
                    lost = LostDraw(draw, "unscored", len(completion.tokens), final=True)
                    fresh.append(lost if np.isnan(graded.rewards).all() else completion)
            if fresh or not everything:
                return fresh

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws, the same in all processes; returns their tokens drawn in all processes."""
        cancelled = list(draws)
        if not cancelled:
            return 0
        self._in_flight.difference_update(cancelled)
        self._own.difference_update(cancelled)
        return sum(self._gather([self._engine.cancel(cancelled)]))

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Pass the weights on."""
        self._engine.load_weights(weights)

    def forget(self) -> None:
        """Forget a finished step: its grades, and what is being done twice."""
        self._engine.cancel(self._own)
        self._own.clear()
        self.graded.clear()

    def _grade_together(self, own: list[Outcome]) -> Sequence[Graded]:
        rows = max(self._gather([len(own)]))
        if not rows:
            return []
        # Every submission brings each process a row, so one that has none now has had one before.
        self._spare = own[-1] if own else self._spare
        graded = self._grade([*own, *[self._spare] * (rows - len(own))])  # type: ignore[list-item]
        return graded[: len(own)]
