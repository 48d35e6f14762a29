"""Schedules: in what portions a prompt's responses are drawn, and when its exit rule is asked."""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from rollwise.sampling.checks import at_least
from rollwise.sampling.exits import ExitRule
from rollwise.sampling.progress import Progress


class Dispatcher(Protocol):
    """Decides whose draw comes next, within one session; it can be pickled."""

    def changed(self, prompt: Progress) -> None:
        """Hear that a prompt was added, was handed a draw, or learnt of an outcome."""
        ...

    def next(self, left: int, speculate: bool) -> Progress | None:
        """Choose the prompt that the next draw is for; None if what is in flight comes first.

        Args:
            left: The draws left to the whole batch.
            speculate: Whether draws may be handed out that might turn out surplus.
        """
        ...


class Schedule(Protocol):
    """How a session hands out draws."""

    @property
    def max_samples(self) -> int:
        """The most draws that one prompt may take."""
        ...

    @property
    def speculation(self) -> float:
        """The least probability of being needed that a draw handed out ahead has."""
        ...

    def asks(self, settled: int) -> bool:
        """Say whether the exit rule is asked once `settled` draws of a prompt are in order."""
        ...

    def dispatcher(self) -> Dispatcher:
        """Begin to dispatch the draws of a session."""
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

    @property
    def speculation(self) -> float:
        """Rounds look at no probabilities."""
        return 1.0

    def asks(self, settled: int) -> bool:
        """At the end of each round."""
        return settled % self.size == 0

    def dispatcher(self) -> "_RoundsDispatcher":
        """Begin the first round."""
        return _RoundsDispatcher(self.size)


class _RoundsDispatcher:
    """Hands out a round to all unresolved prompts, once the last one is in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._prompts: list[Progress] = []
        self._round: deque[Progress] = deque()
        self._waits_for: Progress | None = None

    def changed(self, prompt: Progress) -> None:
        if not prompt.issued:
            self._prompts.append(prompt)

    def next(self, left: int, speculate: bool) -> Progress | None:
        if not self._round and not self._awaits_any():
            self._begin_round(left)
        return self._round.popleft() if self._round else None

    def _awaits_any(self) -> bool:
        if self._waits_for is None or self._waits_for.issued == self._waits_for.settled:
            behind = (p for p in self._prompts if p.issued > p.settled and not p.ended)
            self._waits_for = next(behind, None)
        return self._waits_for is not None

    def _begin_round(self, left: int) -> None:
        """Share out a round; where the batch has too few draws left for it, evenly."""
        self._prompts = [p for p in self._prompts if not p.ended]
        wanted = [min(self._size, p.outlook.budget - p.issued) for p in self._prompts]
        if sum(wanted) > left:
            each, rest = divmod(left, len(self._prompts))
            wanted = [min(w, each + (i < rest)) for i, w in enumerate(wanted)]
        for prompt, count in zip(self._prompts, wanted, strict=True):
            self._round.extend([prompt] * count)


@dataclass(frozen=True)
class Streamed:
    """No rounds: a free slot goes to the prompt that is furthest behind, and nobody waits.

    The rule is asked after every draw, in draw order, so a pool is the one that drawing one at a
    time would give, whatever the engine's timing. To keep slots full, draws are handed out before
    it is known that they are needed, and cancelled if they are not: as many ahead as are each
    needed with a probability of at least `speculation`, by what is believed of the prompt. Each
    slot goes to the unresolved prompt with the fewest draws in flight for what it is still
    expected to need; among equals, to the one that needs most.
    """

    max_samples: int = field(default=32, metadata={"help": "Draws of a prompt, at most."})
    speculation: float = field(
        default=0.25,
        metadata={
            "help": "A draw is handed out ahead if it is needed with at least this probability; "
            "less keeps more slots full and wastes more draws."
        },
    )

    def __post_init__(self) -> None:
        at_least("max_samples", self.max_samples, 1)
        if not 0 <= self.speculation <= 1:
            raise ValueError(f"speculation must lie between 0 and 1, got {self.speculation}")

    def asks(self, settled: int) -> bool:
        """After every draw."""
        return True

    def dispatcher(self) -> "_StreamedDispatcher":
        """Begin with nothing in flight."""
        return _StreamedDispatcher()


class _StreamedDispatcher:
    """The prompts that a draw may be handed to: a heap of priorities, and of places for each.

    Many prompts share a priority, and one heap of pairs would compare more and fetch far more from
    memory. Entries that are out of date stay until their turn comes; there are at most two a draw.
    Prompts whose next draw might turn out surplus are parked while nobody speculates.
    """

    def __init__(self) -> None:
        self._prompts: list[Progress] = []
        self._priorities: list[float] = []
        self._order: list[float] = []
        self._places: dict[float, list[int]] = {}
        self._parked: list[Progress] = []

    def changed(self, prompt: Progress) -> None:
        place = prompt.place
        if place == len(self._prompts):
            self._prompts.append(prompt)
            self._priorities.append(_NO_TURN)
        priority = _priority(prompt)
        if self._priorities[place] != priority:
            self._priorities[place] = priority
            if priority in self._places:
                heapq.heappush(self._places[priority], place)
            elif priority != _NO_TURN:
                heapq.heappush(self._order, priority)
                self._places[priority] = [place]

    def next(self, left: int, speculate: bool) -> Progress | None:
        while speculate and self._parked:
            self.changed(self._parked.pop())
        while self._order:
            priority = self._order[0]
            places = self._places[priority]
            while places:
                place = heapq.heappop(places)
                if self._priorities[place] != priority:
                    continue
                self._priorities[place] = _NO_TURN
                prompt = self._prompts[place]
                if speculate or _is_certain(prompt):
                    return prompt
                self._parked.append(prompt)
            del self._places[heapq.heappop(self._order)]
        return None


_NO_TURN = math.inf


def _priority(prompt: Progress) -> float:
    """Say when a prompt's turn is, the smallest first: who has least in flight for its need.

    Those that nothing was drawn for yet come before all, and who needs most breaks ties.
    """
    outlook, issued, in_flight = prompt.outlook, prompt.issued, prompt.in_flight
    correct, incorrect = prompt.known_correct, prompt.known_incorrect
    if issued >= prompt.wanted or in_flight >= outlook.worthwhile[correct][incorrect]:
        return _NO_TURN
    need = outlook.expected_need[correct][incorrect]
    return (in_flight / need if issued else -1.0) - 1e-6 * need


def _is_certain(prompt: Progress) -> bool:
    """Say whether one draw more is needed, whatever comes of those in flight."""
    certain_need = prompt.outlook.certain_need[prompt.known_correct][prompt.known_incorrect]
    return prompt.in_flight < certain_need


def check_reachable(rule: ExitRule, schedule: Schedule) -> None:
    """Refuse a rule that no pool within the schedule's budget can satisfy.

    Raises:
        ValueError: Names both.
    """
    most = schedule.max_samples
    if not any(rule.satisfied(correct, most - correct) for correct in range(most + 1)):
        raise ValueError(f"{rule} can never be satisfied within the {most} draws of {schedule}")
