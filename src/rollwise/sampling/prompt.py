"""A prompt in a session: its pool, and its draws in flight."""

from dataclasses import dataclass, field, replace
from typing import Any

from rollwise.sampling.draws import Draw, ExitReason, draw_seed
from rollwise.sampling.pool import Pool
from rollwise.sampling.stopping import Stopping, shared

Recorded = tuple[float, Any] | None
"""What came of a draw: its reward and response, or None if it was lost."""


@dataclass(eq=False, slots=True)
class SampledPrompt:
    """A prompt in a session, from its first draw to its exit.

    Attributes:
        stopping: Where sampling stops, by the counts in the pool.
        issued: Draws handed out.
        outstanding: The number of draws in flight, and of those that failed and will be repeated.
        processed: Draws that are in the pool or lost, as are all draws before them.
        waiting: What came of draws that wait for an earlier one, by index.
        known_correct: Correct responses, those that wait included; likewise `known_incorrect`.
    """

    pool: Pool
    stopping: Stopping
    position: int
    seed: int
    step: int
    issued: int = 0
    in_flight: dict[int, Draw] = field(default_factory=dict)
    outstanding: int = 0
    processed: int = 0
    waiting: dict[int, Recorded] = field(default_factory=dict)
    known_correct: int = 0
    known_incorrect: int = 0

    @property
    def ended(self) -> bool:
        """Whether its sampling has ended."""
        return self.pool.exit_reason is not None

    @property
    def limit(self) -> int:
        """Draws with this index or a higher one are not needed."""
        return self.processed if self.ended else self.stopping.budget

    def issue(self) -> Draw:
        """Hand out its next draw."""
        key, index = self.pool.key, self.issued
        draw = Draw(key, index, draw_seed(self.seed, self.step, key, index))
        self.in_flight[index] = draw
        self.issued += 1
        self.outstanding += 1
        return draw

    def receive(self, index: int, recorded: Recorded) -> list[Draw]:
        """Take in what came of a draw, in draw order; returns the draws that are now surplus."""
        self.outstanding -= 1
        if recorded is not None:
            correct = recorded[0] > self.pool.positive_threshold
            self.known_correct += correct
            self.known_incorrect += not correct
        self.waiting[index] = recorded
        while self.processed in self.waiting:
            taken = self.waiting.pop(self.processed)
            self.processed += 1
            if taken is None:
                self.stopping = shared(replace(self.stopping, lost=self.stopping.lost + 1))
            else:
                self.pool.take(*taken)
            if reason := self.exit_reason():
                return self.end(reason)
        return []

    def end(self, reason: ExitReason) -> list[Draw]:
        """End its sampling; what waits is dropped, and what is in flight is returned."""
        self.pool.exit_reason = reason
        self.waiting.clear()
        surplus = [self.in_flight[index] for index in sorted(self.in_flight)]
        self.in_flight.clear()
        return surplus

    def exit_reason(self, last: bool = False) -> ExitReason | None:
        """Say why sampling ends with the pool as it is (`last`: it must); None if it continues."""
        state = self.pool.positives, self.pool.negatives
        last = last or self.processed >= self.stopping.budget
        if last or self.stopping.asked[len(self.pool)]:
            if self.stopping.satisfied[state]:
                return "satisfied"
            if self.stopping.futile[state]:
                return "futile"
        return "exhausted" if last else None
