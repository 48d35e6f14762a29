"""How far the sampling of one prompt has come."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rollwise.sampling.outlook import Outlook
from rollwise.sampling.pool import ExitReason, Pool

if TYPE_CHECKING:
    from rollwise.sampling.session import Draw

Outcome = tuple[float, Any] | None
"""A reward and its response, or None for a draw that was lost."""


@dataclass(eq=False, slots=True)
class Progress:
    """A prompt in a session: its pool, and what is on the way to it.

    Attributes:
        pool: Its responses so far, in draw order.
        outlook: When it stops, and what is to be expected of it.
        place: Its place in the session, from 0.
        issued: Draws handed out.
        settled: Draws whose outcome is in the pool (or lost), with all before them.
        arrived: Outcomes that wait for an earlier draw, by the draw's index.
        flying: Draws handed out and not reported, by index.
        known_correct: Correct responses that are known, those that wait included.
        known_incorrect: Incorrect ones.
        wanted: Draws from this index on are surplus, as far as is known.
    """

    pool: Pool
    outlook: Outlook
    place: int
    issued: int = 0
    settled: int = 0
    arrived: dict[int, Outcome] = field(default_factory=dict)
    flying: "dict[int, Draw]" = field(default_factory=dict)
    known_correct: int = 0
    known_incorrect: int = 0
    wanted: int = sys.maxsize

    @property
    def ended(self) -> bool:
        """Whether it is sampled no more."""
        return self.pool.exit_reason is not None

    @property
    def in_flight(self) -> int:
        """Draws handed out and not reported, or to be drawn again."""
        return self.issued - self.settled - len(self.arrived)

    @property
    def takes_draws(self) -> bool:
        """Whether further draws may be handed out."""
        return self.issued < min(self.wanted, self.outlook.budget)

    def arrive(self, index: int, outcome: Outcome) -> None:
        """Note an outcome; it is taken into the pool when those before it have come.

        Where what is known meets a rule that then stays met, the prompt ends at that draw at the
        latest, whatever comes of those before it: later ones are surplus already.
        """
        self.arrived[index] = outcome
        if outcome is None:
            return
        if outcome[0] > self.pool.positive_threshold:
            self.known_correct += 1
        else:
            self.known_incorrect += 1
        if (
            index > self.settled
            and self.outlook.stays_met
            and self.outlook.satisfied[self.known_correct][self.known_incorrect]
        ):
            self.wanted = min(self.wanted, self._met_by() + 1)

    def _met_by(self) -> int:
        """Find the first draw at which the known responses up to it meet the rule."""
        correct, incorrect = self.pool.positives, self.pool.negatives
        for index in sorted(self.arrived):
            outcome = self.arrived[index]
            if outcome is not None:
                is_correct = outcome[0] > self.pool.positive_threshold
                correct, incorrect = correct + is_correct, incorrect + (not is_correct)
                if self.outlook.satisfied[correct][incorrect]:
                    return index
        return sys.maxsize - 1

    def settle(self) -> bool:
        """Take the next outcome in draw order into the pool; False if it has not come."""
        if self.settled not in self.arrived:
            return False
        outcome = self.arrived.pop(self.settled)
        self.settled += 1
        if outcome is not None:
            self.pool.take(*outcome)
        return True

    def exit_reason(self, cut_short: bool) -> ExitReason | None:
        """Say why the pool ends as it is now; None if it goes on.

        Args:
            cut_short: Whether no further draw will come.
        """
        outlook = self.outlook
        last = cut_short or self.settled >= outlook.budget
        if last or outlook.asked[self.settled]:
            correct, incorrect = self.pool.positives, self.pool.negatives
            if outlook.satisfied[correct][incorrect]:
                return "satisfied"
            if outlook.futile[correct][incorrect]:
                return "futile"
        return "exhausted" if last else None

    def end(self, reason: ExitReason) -> None:
        """Sample it no more; what waits is dropped."""
        self.pool.exit_reason = reason
        self.wanted = self.settled
        self.arrived.clear()

    def take_surplus(self) -> "list[Draw]":
        """Hand over the draws in flight that are not wanted; they are to be cancelled."""
        if self.wanted >= self.issued:
            return []
        return [self.flying.pop(i) for i in sorted(self.flying) if i >= self.wanted]
