"""A prompt in a session: its pool, and its draws in flight."""

from dataclasses import dataclass, field
from typing import Any

from rollwise.sampling.draws import Draw, ExitReason, hash_index
from rollwise.sampling.pool import Pool
from rollwise.sampling.stopping import StoppingTables

Recorded = tuple[float, Any] | None
"""What came of a draw: its reward and response, or None if it was lost."""


@dataclass(eq=False, slots=True)
class SampledPrompt:
    """A prompt in a session, from its first draw to its exit.

    Attributes:
        tables: Where sampling stops, by the counts in the pool.
        issued: Draws handed out.
        outstanding: The number of draws in flight, and of those that failed and will be repeated.
        processed: Draws that are in the pool or lost, with all draws before them.
        waiting: What came of draws that wait for an earlier one, by index.
        known_correct: Correct responses, those that wait included; likewise `known_incorrect`.
        known_tables: As `tables`, with all losses so far, also those that wait.
        limit: Draws with this index or a higher one are known to be surplus.
    """

    pool: Pool
    tables: StoppingTables
    position: int
    seed_prefix: str
    issued: int = 0
    in_flight: dict[int, Draw] = field(default_factory=dict)
    outstanding: int = 0
    processed: int = 0
    waiting: dict[int, Recorded] = field(default_factory=dict)
    known_correct: int = 0
    known_incorrect: int = 0
    known_tables: StoppingTables = field(init=False)
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.known_tables, self.limit = self.tables, self.tables.budget

    @property
    def ended(self) -> bool:
        """Whether it is sampled no more."""
        return self.pool.exit_reason is not None

    def issue(self) -> Draw:
        """Hand out its next draw."""
        index = self.issued
        draw = Draw(self.pool.key, index, hash_index(self.seed_prefix, index))
        self.in_flight[index] = draw
        self.issued += 1
        self.outstanding += 1
        return draw

    def repeat(self, draw: Draw) -> bool:
        """Hand out a failed draw again; False if it is not needed any more."""
        if self.ended or draw.index >= self.limit:
            return False
        self.in_flight[draw.index] = draw
        return True

    def release(self, draw: Draw) -> bool:
        """Take a reported draw out of those in flight; False if it is not among them."""
        found = self.in_flight.get(draw.index)
        if found is draw or found == draw:
            del self.in_flight[draw.index]
            return True
        return False

    def receive(self, index: int, recorded: Recorded) -> list[Draw]:
        """Take in what came of a draw, in draw order; returns the draws that are now surplus."""
        self.outstanding -= 1
        if recorded is None:
            self.known_tables = self.tables.after_losing(self.known_tables.stopping.lost + 1)
        elif recorded[0] > self.pool.positive_threshold:
            self.known_correct += 1
        else:
            self.known_incorrect += 1
        if index > self.processed:
            self.waiting[index] = recorded
            if recorded is not None:
                self._lower_limit()
        else:
            self._process(recorded)
            while self.processed in self.waiting:
                self._process(self.waiting.pop(self.processed))
        if self.limit >= self.issued:
            return []
        return [self.in_flight.pop(i) for i in sorted(self.in_flight) if i >= self.limit]

    def end(self, reason: ExitReason) -> None:
        """Sample it no more; what waits is dropped."""
        self.pool.exit_reason = reason
        self.limit = self.processed
        self.waiting.clear()

    def exit_reason(self, last: bool = False) -> ExitReason | None:
        """Say why sampling ends with the pool as it is, or as the `last`; None if it continues."""
        tables = self.tables
        correct, incorrect = self.pool.positives, self.pool.negatives
        last = last or self.processed >= tables.budget
        if last or tables.asked[correct + incorrect]:
            if tables.satisfied[correct][incorrect]:
                return "satisfied"
            if tables.futile[correct][incorrect]:
                return "futile"
        return "exhausted" if last else None

    def _process(self, recorded: Recorded) -> None:
        """Take what came of the next draw into the pool, and end the prompt if it is time."""
        self.processed += 1
        if recorded is None:
            self.tables = self.tables.after_losing(self.tables.stopping.lost + 1)
        else:
            self.pool.take(*recorded)
        if reason := self.exit_reason():
            self.end(reason)

    def _lower_limit(self) -> None:
        """Find surplus before the exit, where the rule stays satisfied once it is.

        Where the known responses satisfy it, the prompt ends at the last of them, whatever those
        between turn out to be.
        """
        satisfied = self.tables.satisfied
        if (
            not self.tables.stays_satisfied
            or not satisfied[self.known_correct][self.known_incorrect]
        ):
            return
        correct, incorrect = self.pool.positives, self.pool.negatives
        for index, recorded in sorted(self.waiting.items()):
            if recorded is not None:
                is_correct = recorded[0] > self.pool.positive_threshold
                correct, incorrect = correct + is_correct, incorrect + (not is_correct)
                if satisfied[correct][incorrect]:
                    self.limit = min(self.limit, index + 1)
                    return
