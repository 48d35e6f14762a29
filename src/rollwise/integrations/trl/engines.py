"""The engines of `AdaptiveGRPOTrainer`: TRL's own, and one shared by several processes."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwise.engines import BatchEngine, LostDraw, Response
from rollwise.engines.ends import configured_ends, end_of_turn, end_tokens
from rollwise.sampling import Draw

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Graded:
    """What TRL's reward functions say of a response.

    Attributes:
        rewards: One for each function, NaN where it abstains.
        logged: What they wrote by TRL's `log_extra`, by column.
    """

    rewards: Sequence[float]
    logged: Mapping[str, Any]


Grade = Callable[[Mapping[Draw, Response]], Sequence[Graded]]

Gather = Callable[[list[Any]], list[Any]]
"""Concatenates the lists of all processes, in the order of the processes."""


class TRLEngine(BatchEngine):
    """Generates with TRL: vLLM, `generate` or continuous batching, with TRL's settings.

    The draws' seeds are not used: random numbers are those of the process, or of vLLM.

    Args:
        trainer: A `GRPOTrainer`.
        batch_size: Responses generated at a time; None leaves that to the backend.
    """

    def __init__(self, trainer: Any, batch_size: int | None) -> None:
        super().__init__()
        self._trainer, self._batch_size = trainer, batch_size
        self._tokenizer = trainer.processing_class
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._end_tokens = end_tokens(model.generation_config, self._tokenizer)
        turn, named = end_of_turn(self._tokenizer), configured_ends(None, self._tokenizer)
        if turn is not None and turn not in named:
            log.warning(
                "TRL ends responses with %r, and the chat template closes turns with %r: set "
                "`processing_class.eos_token` to that before the trainer is made",
                self._tokenizer.eos_token,
                self._tokenizer.convert_ids_to_tokens(turn),
            )
        self._waiting: dict[Draw, Sequence[int]] = {}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Do nothing: TRL updates the weights of its own generation."""

    def _begin(self, draw: Draw, prompt: Sequence[int]) -> None:
        self._waiting[draw] = prompt

    def _abandon(self, draw: Draw) -> int:
        self._waiting.pop(draw, None)
        return 0  # it has not started

    def _advance(self) -> Iterator[tuple[Draw, Response]]:
        """Complete all waiting draws."""
        draws, prompts = list(self._waiting), [list(ids) for ids in self._waiting.values()]
        self._waiting.clear()
        size = self._batch_size or max(len(draws), 1)
        for start in range(0, len(draws), size):
            part = slice(start, start + size)
            yield from zip(draws[part], self._responses(prompts[part]), strict=True)

    def _responses(self, prompts: list[list[int]]) -> Iterator[Response]:
        generate = self._by_vllm if self._trainer.use_vllm else self._by_transformers
        drawn, logprobs = generate(prompts)
        texts = self._tokenizer.batch_decode(drawn, skip_special_tokens=True)
        for tokens, known, text in zip(drawn, logprobs, texts, strict=True):
            cut = not tokens or tokens[-1] not in self._end_tokens
            yield Response(list(tokens), np.array(known, np.float32), text, cut)

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


class SharedEngine(BatchEngine):
    """Splits draws over processes: each draws and grades its share, and receives all results.

    Every process takes up the same draws and gets the same responses, so that equal sessions stay
    equal. What is collective happens in all processes at once, in the same order, and shares have
    equally many rows, which TRL's collective operations need: where a split is uneven, some rows
    are done twice and counted once. A response on which every reward function abstains is lost, as
    TRL leaves it out.

    Args:
        engine: This process's engine.
        grade: Called in all processes at once, with equally many responses.
        gather: Concatenates lists over the processes.
        rank: This process's number.
        ranks: How many there are.

    Attributes:
        graded: Draw -> what the reward functions say of it.
    """

    def __init__(
        self, engine: BatchEngine, grade: Grade, gather: Gather, rank: int = 0, ranks: int = 1
    ) -> None:
        super().__init__()
        self._engine, self._grade, self._gather = engine, grade, gather
        self._rank, self._ranks = rank, ranks
        self._waiting: dict[Draw, Sequence[int]] = {}
        self._own: set[Draw] = set()
        self._abandoned = 0
        self.graded: dict[Draw, Graded] = {}

    @property
    def slots(self) -> int | None:  # type: ignore[override]
        """The slots of all processes; None if the engines have no limit."""
        slots = self._engine.slots
        return None if slots is None else sum(self._gather([slots]))

    def count_abandoned(self) -> int:
        """Return the tokens of cancelled draws in all processes, since this was last asked."""
        tokens, self._abandoned = sum(self._gather([self._abandoned])), 0
        return tokens

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Pass the weights on."""
        self._engine.load_weights(weights)

    def _begin(self, draw: Draw, prompt: Sequence[int]) -> None:
        self._waiting[draw] = prompt

    def _abandon(self, draw: Draw) -> int:
        self._waiting.pop(draw, None)
        self._abandoned += self._give_up(draw)
        return 0  # processes count them together (`count_abandoned`)

    def _advance(self) -> Iterable[tuple[Draw, Response | LostDraw]]:
        """Return what is done in any process, once each has something, or nothing to do."""
        for draw in self._share(list(self._waiting)):
            self._engine._begin(draw, self._waiting[draw])
            self._own.add(draw)
        self._waiting.clear()
        own = list[Any]()
        while self._own and not own:
            own = list(self._engine._advance())
        self._own.difference_update(draw for draw, _ in own)
        found = dict(self._gather(own))
        for draw in found:
            self._give_up(draw)  # this process may be drawing it too
        share = {draw: found[draw] for draw in self._share(list(found))}
        self.graded |= self._gather(list(zip(share, self._grade(share), strict=True)))
        return [(draw, self._scored(draw, response)) for draw, response in found.items()]

    def _give_up(self, draw: Draw) -> int:
        if draw not in self._own:
            return 0
        self._own.remove(draw)
        return self._engine._abandon(draw)

    def _scored(self, draw: Draw, response: Response) -> Response | LostDraw:
        if not np.isnan(self.graded[draw].rewards).all():
            return response
        return LostDraw("every reward function abstained", len(response.tokens), final=True)

    def _share(self, draws: list[Draw]) -> list[Draw]:
        """Return this process's part; all have equally many, so that some may be in two."""
        rows = -(-len(draws) // self._ranks)
        return [draws[(self._rank + row * self._ranks) % len(draws)] for row in range(rows)]
