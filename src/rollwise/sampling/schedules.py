"""Schedules: when a prompt's responses are drawn, and when its exit rule is asked."""

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import at_least, at_most, setting, share
from rollwise.sampling.exits import ExitRule, check_is_rule, where_satisfied
from rollwise.sampling.prompt import SampledPrompt

MOST_SAMPLES = 4096
"""The most draws of one prompt: the tables by number of correct and of incorrect responses then
take 2 GB."""


class Dispatcher(Protocol):
    """Decides whose draw comes next, within one session; it can be pickled."""

    def add(self, prompt: SampledPrompt) -> None:
        """Take in a prompt."""

    def changed(self, prompt: SampledPrompt) -> None:
        """Note that a draw of a prompt was handed out, or that its result is known."""

    def next(self, ahead: bool) -> SampledPrompt | None:
        """Choose the prompt that the next draw is for; None to wait for what is in flight.

        `ahead` says whether draws may be handed out that might turn out surplus.
        """


class Schedule(ABC):
    """Base class of schedules; one of your own is a frozen dataclass with the abstract members.

    Attributes:
        streams: Whether draws are best handed out one by one, as an engine's slots come free.
        draws_ahead: Whether draws are handed out before they are known to be needed.
        uses_priors: Whether the order of draws depends on what is believed of pass rates.
    """

    streams: bool = False
    draws_ahead: bool = False
    uses_priors: bool = False

    @property
    @abstractmethod
    def max_samples(self) -> int:
        """The most draws of one prompt."""

    @abstractmethod
    def asks(self, processed: int) -> bool:
        """Say whether the exit rule is asked after `processed` draws of a prompt, lost ones too.

        It is always asked after `max_samples`.
        """

    @abstractmethod
    def dispatcher(self) -> Dispatcher:
        """Make the object that chooses the prompt of each draw in a new session."""

    def draws_by_round(self, drawn: NDArray[np.int64]) -> list[float]:
        """Return the mean draws in each round, from those of each prompt, shape (P,)."""
        return []


@dataclass(frozen=True)
class Rounds(Schedule):
    """The published schedule: every unresolved prompt gets `size` draws a round.

    The rule is asked at the end of a round, and a round begins when the last is in (Reinforce-Ada,
    arXiv 2510.04996, Algorithm 1 of v1, Reinforce-Ada-Seq of v3; M = 8 and R = 4 are the defaults
    of its code). A pool therefore overshoots its rule by up to `size` − 1 draws, and the whole
    batch waits for the longest response of each round.
    """

    size: int = setting(8, "Draw this many responses per unresolved prompt in a round.")
    rounds: int = setting(4, "Draw at most this many rounds.")

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)
        at_least("rounds", self.rounds, 1)
        at_most("size · rounds, the most draws of a prompt,", self.max_samples, MOST_SAMPLES)

    @property
    def max_samples(self) -> int:
        """R·M."""
        return self.size * self.rounds

    def asks(self, processed: int) -> bool:
        return processed % self.size == 0

    def dispatcher(self) -> "_RoundsDispatcher":
        return _RoundsDispatcher(self.size)

    def draws_by_round(self, drawn: NDArray[np.int64]) -> list[float]:
        rounds = range(self.rounds)
        return [float(np.clip(drawn - r * self.size, 0, self.size).mean()) for r in rounds]


class _RoundsDispatcher:
    """Hands out a round to all unresolved prompts, once the last round is in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._prompts: list[SampledPrompt] = []
        self._behind: list[SampledPrompt] = []
        self._round: deque[SampledPrompt] = deque()

    def add(self, prompt: SampledPrompt) -> None:
        self._prompts.append(prompt)

    def changed(self, prompt: SampledPrompt) -> None:
        pass

    def next(self, ahead: bool) -> SampledPrompt | None:
        while self._round and self._round[0].ended:
            self._round.popleft()
        if not self._round:
            while self._behind and (
                self._behind[-1].ended or self._behind[-1].processed == self._behind[-1].issued
            ):
                self._behind.pop()
            if not self._behind:
                self._prompts = [p for p in self._prompts if not p.ended]
                self._behind = [*self._prompts]
                for prompt in self._prompts:
                    self._round += [prompt] * min(self._size, prompt.limit - prompt.issued)
        return self._round.popleft() if self._round else None


@dataclass(frozen=True)
class Streamed(Schedule):
    """No rounds: a free slot goes to the prompt that is furthest behind, and no prompt waits.

    The rule is asked after every draw, in draw order, so a pool is what drawing one at a time
    would give, whatever the engine's timing. To keep slots full, draws are handed out before
    it is known that they are needed, and cancelled if they are not: as many ahead as are each
    needed with a probability of at least `speculation`, given the prompt's prior and its responses.
    Each slot goes to the unresolved prompt with the fewest draws in flight relative to what it is
    still expected to need; among equals, to the one that needs most.
    """

    streams = True
    uses_priors = True

    max_samples: int = setting(32, "Draw at most this many responses per prompt.")
    speculation: float = setting(
        0.25,
        "Draw ahead what is needed with at least this probability; lower values keep more slots "
        "full and waste more draws.",
    )

    def __post_init__(self) -> None:
        at_least("max_samples", self.max_samples, 1)
        at_most("max_samples", self.max_samples, MOST_SAMPLES)
        share("speculation", self.speculation)

    @property
    def draws_ahead(self) -> bool:  # type: ignore[override]
        """Unless `speculation` is 1: then each draw handed out is certain to be needed."""
        return self.speculation < 1

    def asks(self, processed: int) -> bool:
        return True

    def dispatcher(self) -> "_StreamedDispatcher":
        return _StreamedDispatcher(self.speculation)


class _StreamedDispatcher:
    """Keeps the turn of each prompt, and whether its next draw is certain to be needed."""

    def __init__(self, speculation: float) -> None:
        self._speculation = speculation
        self._prompts: list[SampledPrompt] = []
        self._turns = np.full(1, math.inf)
        self._certain = np.zeros(1, dtype=bool)

    def add(self, prompt: SampledPrompt) -> None:
        self._prompts.append(prompt)
        if len(self._prompts) > len(self._turns):
            self._turns = np.append(self._turns, np.full(len(self._turns), math.inf))
            self._certain = np.append(self._certain, np.zeros(len(self._certain), dtype=bool))
        self.changed(prompt)

    def changed(self, prompt: SampledPrompt) -> None:
        stopping, outstanding = prompt.stopping, prompt.outstanding
        state = prompt.known_correct, prompt.known_incorrect
        # Certain whatever the rewards of the draws in flight.
        self._certain[prompt.position] = outstanding < stopping.certain_need[state]
        turn, most = math.inf, stopping.worthwhile(self._speculation)[state]
        if prompt.issued < prompt.limit and outstanding < most:
            # The one with the least in flight for its need comes first.
            need = float(stopping.expected_need[state])
            turn = (outstanding / need if prompt.issued else -1.0) - 1e-6 * need
        self._turns[prompt.position] = turn

    def next(self, ahead: bool) -> SampledPrompt | None:
        turns = self._turns if ahead else np.where(self._certain, self._turns, math.inf)
        first = turns.argmin()
        return self._prompts[first] if turns[first] < math.inf else None


def dispatcher_of(schedule: Schedule) -> Dispatcher:
    """Make a session's dispatcher; a `PluginError` names a schedule whose `dispatcher` is wrong."""
    made = schedule.dispatcher()
    if not all(callable(getattr(made, verb, None)) for verb in ("add", "changed", "next")):
        wanted = "an object with the methods add, changed and next"
        raise wrong_result(schedule, "dispatcher", wanted, made)
    return made


def check_reachable(rule: ExitRule, schedule: Schedule) -> None:
    """Refuse a rule that no pool within the schedule's budget can satisfy.

    Raises:
        ValueError: No pool can satisfy it; the message names both.
    """
    check_is_rule(rule)
    most = schedule.max_samples
    if not isinstance(most, Integral) or most < 1:
        raise wrong_result(schedule, "max_samples", "an integer from 1", most)
    counts = np.arange(most + 1)
    if not where_satisfied(rule, counts, most - counts).any():
        raise ValueError(f"{rule} can never be satisfied within the {most} draws of {schedule}")


SCHEDULES: dict[str, type[Schedule]] = {"rounds": Rounds, "streamed": Streamed}
"""The schedules that settings choose by name."""
