"""A prompt in a session: its pool, and its draws in flight."""

from dataclasses import dataclass, field
from typing import Any

from rollwise.sampling.draws import Draw, ExitReason, hash_index
from rollwise.sampling.exits import ExitRule, is_satisfied_by
from rollwise.sampling.pool import Pool
from rollwise.sampling.stopping_tables import StoppingTables

Result = tuple[float, Any] | None
"""What came of a draw: its reward and response, or None if it was lost."""


@dataclass(eq=False, slots=True)
class SampledPrompt:
    """A prompt in a session, from its first draw to its exit.

    Attributes:
        pool: Its responses so far, in draw order.
        tables: Where sampling stops, by the counts in the pool.
        position: Its position in the session, from 0.
        seed_prefix: What the seeds of its draws are hashed from, before the index.
        issued: Draws handed out.
        in_flight: Draws handed out and not reported, by index.
        outstanding: The number of draws in flight, and of those that failed and will be repeated.
        processed: Draws that are in the pool or lost, with all draws before them.
        waiting: Results that wait for an earlier draw, by index.
        known_correct: Correct responses, those that wait included.
        known_incorrect: Incorrect responses, those that wait included.
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
    waiting: dict[int, Result] = field(default_factory=dict)
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

    def receive(self, index: int, result: Result, batch_spent: bool) -> list[Draw]:
        """Take in a draw's result; returns the draws in flight that are now surplus.

        A result enters the pool once those of all draws before it have.

        Args:
            index: The draw's.
            result: Its result.
            batch_spent: Whether the batch has no draws left to hand out.
        """
        self.outstanding -= 1
        if result is None:
            self._count_loss()
        elif result[0] > self.pool.positive_threshold:
            self.known_correct += 1
        else:
            self.known_incorrect += 1
        if index > self.processed:
            self.waiting[index] = result
            self._lower_limit(result)
        else:
            self._process(result, batch_spent)
            while self.processed in self.waiting:
                self._process(self.waiting.pop(self.processed), batch_spent)
        return self._take_surplus() if self.limit < self.issued else []

    def end(self, reason: ExitReason) -> None:
        """Sample it no more; results that wait are dropped."""
        self.pool.exit_reason = reason
        self.limit = self.processed
        self.waiting.clear()

    def exit_reason(self, last: bool) -> ExitReason | None:
        """Say why sampling ends with the pool as it is; None if it continues.

        Args:
            last: Whether no more draws will come.
        """
        tables, pool = self.tables, self.pool
        correct, incorrect = pool.positives, pool.negatives
        last = last or self.processed >= tables.budget
        if last or tables.asked[correct + incorrect]:
            rule = tables.rewards_rule
            if tables.satisfied[correct][incorrect] if rule is None else self._satisfies(rule):
                return "satisfied"
            if tables.futile[correct][incorrect]:
                return "futile"
        return "exhausted" if last else None

    def _count_loss(self) -> None:
        lost = self.known_tables.stopping.lost + 1
        self.known_tables = self.tables.after_losing(lost)

    def _process(self, result: Result, batch_spent: bool) -> None:
        """Take the next result in draw order into the pool, and end the prompt if it is time."""
        self.processed += 1
        if result is None:
            self.tables = self.tables.after_losing(self.tables.stopping.lost + 1)
        else:
            self.pool.take(*result)
        reason = self.exit_reason(batch_spent and self.issued == self.processed)
        if reason is not None:
            self.end(reason)

    def _satisfies(self, rule: ExitRule) -> bool:
        return len(self.pool) > 0 and is_satisfied_by(rule, self.pool.rewards)

    def _lower_limit(self, result: Result) -> None:
        """Find surplus before the exit, where the rule stays satisfied once it is.

        Where the known responses satisfy it, the prompt ends at the last of them that it takes, or
        before, whatever the responses between them turn out to be.
        """
        tables = self.tables
        if (
            result is not None
            and tables.stays_satisfied
            and tables.satisfied[self.known_correct][self.known_incorrect]
        ):
            self.limit = min(self.limit, self._satisfied_at() + 1)

    def _satisfied_at(self) -> int:
        """Find the first draw at which the known responses up to it satisfy the rule."""
        correct, incorrect = self.pool.positives, self.pool.negatives
        for index in sorted(self.waiting):
            result = self.waiting[index]
            if result is not None:
                is_correct = result[0] > self.pool.positive_threshold
                correct, incorrect = correct + is_correct, incorrect + (not is_correct)
                if self.tables.satisfied[correct][incorrect]:
                    return index
        return self.tables.budget

    def _take_surplus(self) -> list[Draw]:
        return [self.in_flight.pop(i) for i in sorted(self.in_flight) if i >= self.limit]
