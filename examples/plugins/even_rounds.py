"""A schedule of one's own: a budget of draws for each prompt, split evenly over rounds.

It delegates to `Rounds`, whose size it computes.
"""

from dataclasses import dataclass, field

import rollwise as rw


@dataclass(frozen=True)
class EvenRounds(rw.Schedule):
    """At most `draws` responses to each prompt, in `rounds` rounds of equal size."""

    draws: int = field(default=16, metadata={"help": "Draws of a prompt, at most."})
    rounds: int = field(default=4, metadata={"help": "Rounds, at most."})

    def __post_init__(self) -> None:
        if self.draws % self.rounds:
            raise ValueError(
                f"draws must be a multiple of rounds ({self.rounds}), got {self.draws}"
            )

    @property
    def _rounds(self) -> rw.Rounds:
        return rw.Rounds(size=self.draws // self.rounds, rounds=self.rounds)

    @property
    def max_samples(self) -> int:
        """The most draws that one prompt may take."""
        return self.draws

    def asks(self, processed: int) -> bool:
        """Ask the exit rule at the end of each round."""
        return self._rounds.asks(processed)

    def dispatcher(self):
        """Begin to hand out the draws of a session."""
        return self._rounds.dispatcher()
