"""How far the sampling of one prompt has come."""

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
        seed_name: What the seeds of its draws are hashed from, before the index.
        issued: Draws handed out.
        in_flight: Draws handed out and not reported, or to be drawn again.
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
    seed_name: str
    issued: int = 0
    in_flight: int = 0
    settled: int = 0
    arrived: dict[int, Outcome] = field(default_factory=dict)
    flying: "dict[int, Draw]" = field(default_factory=dict)
    known_correct: int = 0
    known_incorrect: int = 0
    wanted: int = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = self.outlook.budget

    @property
    def ended(self) -> bool:
        """Whether it is sampled no more."""
        return self.pool.exit_reason is not None

    def learn(self, outcome: Outcome) -> None:
        """Note what came of a draw, in whatever order."""
        self.in_flight -= 1
        if outcome is None:
            return
        if outcome[0] > self.pool.positive_threshold:
            self.known_correct += 1
        else:
            self.known_incorrect += 1

    def hold(self, index: int, outcome: Outcome) -> None:
        """Keep an outcome that was learnt until those before it have come.

        Where what is known meets a rule that then stays met, the prompt ends at that draw at the
        latest, whatever comes of those before it: later ones are surplus already.
        """
        self.arrived[index] = outcome
        if (
            outcome is not None
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
        return self.outlook.budget

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
