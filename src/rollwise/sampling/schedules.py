"""Schedules: when a prompt's responses are drawn, and when its exit rule is asked."""

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import Checked, Count, Share, within
from rollwise.sampling.exits import ExitRule, where_satisfied
from rollwise.sampling.pool import SampledPrompt

MOST_SAMPLES = 4096
"""The most draws of one prompt; the tables of `Stopping` then take 2 GB."""


@runtime_checkable
class Dispatcher(Protocol):
    """Decides whose draw comes next, within one session; it can be pickled."""

    def add(self, prompt: SampledPrompt) -> None:
        """Take in a prompt."""

    def changed(self, prompt: SampledPrompt) -> None:
        """Note that a draw of a prompt was handed out, or that its result is known."""

    def next(self, ahead: bool) -> SampledPrompt | None:
        """Choose the prompt of the next draw; None to wait for what is in flight.

        Without `ahead`, only draws that are certain to be needed may be handed out.
        """


class Schedule(Checked, ABC):
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
        """Return whether the exit rule is asked after `processed` draws of a prompt, lost ones too.

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
    arXiv 2510.04996, Algorithm 1 of v1, Reinforce-Ada-Seq of v3; 8 and 4 are the defaults of its
    code). A pool therefore overshoots its rule by up to `size` − 1 draws, and the whole batch waits
    for the longest response of each round.
    """

    size: Count = 8
    """Responses per unresolved prompt and round."""
    rounds: Count = 4
    """Maximum rounds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("size · rounds", self.max_samples, f"[1, {MOST_SAMPLES}]")

    @property
    def max_samples(self) -> int:
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
            while self._behind and (self._behind[-1].ended or not self._behind[-1].outstanding):
                self._behind.pop()
            if not self._behind:
                self._prompts = [prompt for prompt in self._prompts if not prompt.ended]
                self._behind = [*self._prompts]
                for prompt in self._prompts:
                    self._round += [prompt] * min(self._size, prompt.limit - prompt.issued)
        return self._round.popleft() if self._round else None


@dataclass(frozen=True)
class Streamed(Schedule):
    """No rounds: a free slot goes to the prompt that is furthest behind, and no prompt waits.

    The rule is asked after every draw, in draw order, so a pool is what drawing one at a time would
    give, whatever the engine's timing. To keep slots full, draws that are needed with a probability
    of at least `speculation`, given the prompt's prior and responses, are handed out ahead, and
    cancelled if they are not needed. Each slot goes to the unresolved prompt with the fewest draws
    in flight relative to what it is still expected to need; among equals, to the one that needs
    most.
    """

    streams = True
    uses_priors = True

    max_samples: Annotated[int, Ge(1), Le(MOST_SAMPLES)] = 32
    """Maximum responses per prompt."""
    speculation: Share = 0.25
    """Probability of being needed from which on a draw is started ahead; lower values keep more
    slots full and waste more draws."""

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
            self._turns = np.pad(self._turns, (0, len(self._turns)), constant_values=math.inf)
            self._certain = np.pad(self._certain, (0, len(self._certain)))
        self.changed(prompt)

    def changed(self, prompt: SampledPrompt) -> None:
        stopping, outstanding = prompt.stopping, prompt.outstanding
        state = prompt.known_correct, prompt.known_incorrect
        # Certain whatever the rewards of the draws in flight.
        self._certain[prompt.position] = outstanding < stopping.minimum_draws[state]
        turn, most = math.inf, stopping.likely_draws(self._speculation)[state]
        if prompt.issued < prompt.limit and outstanding < most:
            # The one with the least in flight for its need comes first.
            need = float(stopping.expected_draws[state])
            turn = (outstanding / need if prompt.issued else -1.0) - 1e-6 * need
        self._turns[prompt.position] = turn

    def next(self, ahead: bool) -> SampledPrompt | None:
        turns = self._turns if ahead else np.where(self._certain, self._turns, math.inf)
        first = turns.argmin()
        return self._prompts[first] if turns[first] < math.inf else None


def check_reachable(rule: ExitRule, schedule: Schedule) -> None:
    """Refuse (a `ValueError`) a rule that no pool within the schedule's budget can satisfy."""
    most = schedule.max_samples
    if not isinstance(most, Integral) or most < 1:
        raise wrong_result(schedule, "max_samples", "an integer from 1", most)
    counts = np.arange(most + 1)
    if not where_satisfied(rule, counts, most - counts).any():
        raise ValueError(f"{rule} can never be satisfied within the {most} draws of {schedule}")


SCHEDULES: dict[str, type[Schedule]] = {"rounds": Rounds, "streamed": Streamed}
"""The schedules that settings choose by name."""
