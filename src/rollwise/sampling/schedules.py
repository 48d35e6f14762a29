"""Schedules: in what portions a prompt's responses are drawn, and when its exit rule is asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rollwise.sampling.checks import at_least
from rollwise.sampling.exits import ExitRule


class Schedule(Protocol):
    """How a session hands out draws."""

    @property
    def max_samples(self) -> int:
        """The most draws that one prompt may take."""
        ...

    def asks(self, settled: int) -> bool:
        """Say whether the exit rule is asked once `settled` draws of a prompt are in order."""
        ...

    def plan(self, settled: Sequence[int], in_flight: int) -> Sequence[int]:
        """Say how many further draws each unresolved prompt gets now.

        Args:
            settled: For each unresolved prompt, its draws that are done.
            in_flight: Draws handed out and not yet reported, over all prompts.
        """
        ...


@dataclass(frozen=True)
class Rounds:
    """The published schedule: every unresolved prompt gets `size` draws a round.

    The rule is asked at the end of a round, and a round begins when the last is in (Reinforce-Ada,
    arXiv 2510.04996, Algorithm 1 of v1, Reinforce-Ada-Seq of v3; M = 8 and R = 4 are the defaults
    of its code). A pool therefore overshoots its rule by up to `size` − 1 draws, and the whole
    batch waits for the longest response of each round.
    """

    size: int = field(default=8, metadata={"help": "Draws of an unresolved prompt a round."})
    rounds: int = field(default=4, metadata={"help": "Rounds, at most."})

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)
        at_least("rounds", self.rounds, 1)

    @property
    def max_samples(self) -> int:
        """R·M."""
        return self.size * self.rounds

    def asks(self, settled: int) -> bool:
        """At the end of each round."""
        return settled % self.size == 0

    def plan(self, settled: Sequence[int], in_flight: int) -> Sequence[int]:
        """Hand out the next round to all, once the last one is in."""
        return [0 if in_flight else self.size] * len(settled)


def check_reachable(rule: ExitRule, schedule: Schedule) -> None:
    """Refuse a rule that no pool within the schedule's budget can satisfy.

    Raises:
        ValueError: Names both.
    """
    most = schedule.max_samples
    if not any(rule.satisfied(correct, most - correct) for correct in range(most + 1)):
        raise ValueError(f"{rule} can never be satisfied within the {most} draws of {schedule}")
