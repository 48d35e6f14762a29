"""The base of all samplers over a fixed set of prompts: indices, checks, states that fit."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs import Belief, DecayedBeta
from rollwise.beliefs.belief import priors_from
from rollwise.beliefs.counts import DECAY_HELP
from rollwise.beliefs.state import (
    Indices,
    Kept,
    State,
    from_state,
    metrics_of,
    named_under,
    part_of_state,
    saveable,
    set_values,
    state_of,
    values_in,
)
from rollwise.prompts.keys import Mask, counts_by_index, fingerprint, indices_of, marked
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.checks import array_from, at_least, setting
from rollwise.sampling.draws import Key, number


@dataclass(eq=False)
class FixedSetSampler(Kept, PromptSampler):
    """A sampler over a fixed set of prompts, which chooses given a belief.

    Write `choose`, which refers to prompts by their indices in the order of the keys, and asks
    `self.belief` what is expected of them. If a sampler learns more than its belief, write `learn`
    and `metrics` too, and name in `kept` the attributes that a resumed run needs. The fields of a
    subclass that have a `help` are its settings.

    Args:
        keys: The prompts, each once (strings or integers; NumPy's integers become Python's).
        batch_size: Prompts per step, at most as many as there are.
        seed: With the number of asks it determines the random numbers, so that a sampler that
            resumes from a state continues as it would have.
        belief: What is known of pass rates; the sampler updates it. By default one of its own.
        visits: Ask for a prompt until it was told this often; once all were, batches are empty.

    Attributes:
        belief_kind: The class of its own belief.
        index: Where each key stands in their order, from 0.
        asks: Batches asked for so far.

    Raises:
        TypeError: A key that is neither a string nor an integer.
        ValueError: A key twice, a batch larger than the set, `visits` below 1, or a belief for a
            different number of prompts.
    """

    belief_kind: ClassVar[type[Belief]] = DecayedBeta

    keys: Sequence[Key] = field(repr=False)
    batch_size: int
    seed: int = 0
    belief: Belief = field(default=None, kw_only=True, repr=False)  # type: ignore[assignment]
    visits: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        at_least("batch_size", self.batch_size, 1)
        at_least("seed", self.seed, 0)
        self.index = number(self.keys)
        self.keys = tuple(self.index)
        self.asks = 0
        if self.batch_size > len(self.keys):
            raise ValueError(
                f"batch_size must be at most the number of prompts ({len(self.keys)}), "
                f"got {self.batch_size}"
            )
        if self.visits is not None:
            at_least("visits", self.visits, 1)
        self._visited = np.full(0 if self.visits is None else len(self.keys), 0, dtype=np.int32)
        self.belief = self.make_belief() if self.belief is None else self.belief
        if self.belief.total != len(self.keys):
            raise ValueError(
                f"belief must cover as many prompts as there are ({len(self.keys)}), "
                f"got one of {self.belief.total}"
            )

    def ask(self, count: int | None = None, exclude: Collection[Key] = ()) -> list[Key]:
        count = self.batch_size if count is None else count
        at_least("count", count, 1)
        total = len(self.keys)
        done = np.flatnonzero(self._visited >= (self.visits or 1))  # empty without a limit
        left_out = marked(marked(None, indices_of(self.index, exclude), total), done, total)
        wanted = f"an array of indices, shape (P,), from 0 to {total - 1}"

        def fits(found: NDArray[Any]) -> bool:
            if found.ndim != 1 or not found.size:
                return found.ndim == 1
            return found.dtype.kind in "iu" and bool(found.min() >= 0 and found.max() < total)

        indices = array_from(self, "choose", wanted, fits, min(count, total), left_out)
        self.asks += 1
        return [self.keys[index] for index in indices.tolist()]

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        indices, positives, draws = counts_by_index(self.index, keys, correct, drawn)
        if indices.size:
            self.learn(indices, positives, draws)
        if self.visits:
            self._visited[indices] += 1

    @property
    def exhausted(self) -> bool:
        return bool(self.visits and (self._visited >= self.visits).all())

    def metrics(self) -> dict[str, float]:
        return metrics_of(self.belief)

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return self.belief.mean(indices_of(self.index, keys)).astype(float)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return priors_from(self.belief, "priors", len(keys), indices_of(self.index, keys))

    @property
    def _counted(self) -> tuple[str, ...]:
        return () if self.visits is None else ("_visited",)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all keys in their order."""
        return fingerprint(self.keys)

    def state_dict(self) -> State:
        return {
            "sampler": type(self).__name__,
            "prompts": len(self.keys),
            "fingerprint": self.fingerprint,
            **state_of(self, ("asks", *self._counted, *self.kept)),
            "belief": type(self.belief).__name__,
            **named_under("belief", saveable(self.belief)),
        }

    def load_state_dict(self, state: State) -> None:
        own, kind = type(self).__name__, str(state.get("sampler", ""))
        if kind not in ("", own):
            raise ValueError(f"the state was saved by the sampler {kind}, this one is {own}")
        if (found := str(state.get("fingerprint", self.fingerprint))) != self.fingerprint:
            raise ValueError(
                f"the state was saved for {state.get('prompts')} prompts, this one has "
                f"{len(self.keys)}: other ones, or in another order (fingerprints {found}, "
                f"{self.fingerprint})"
            )
        values = values_in(self, ("asks", *self._counted, *self.kept), state)
        own, kind = type(self.belief).__name__, str(from_state(state, "belief"))
        if kind != own:
            raise ValueError(f"the state was saved by the belief {kind}, this one is {own}")
        self.belief.load_state_dict(part_of_state(state, "belief"))
        set_values(values)

    @abstractmethod
    def choose(self, count: int, exclude: Mask | None) -> Indices | NDArray[np.int32]:
        """Choose the indices of `count` prompts, each once, none of them excluded."""

    def make_belief(self) -> Belief:
        """Make the default belief."""
        return self.belief_kind(len(self.keys))

    def learn(self, indices: Indices, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Take in the counts of some prompts, shape (P,) each, all with draws."""
        self.belief.learn(indices, correct, drawn)

    def rng(self) -> np.random.Generator:
        """Return the random number generator of this ask."""
        return np.random.default_rng((self.seed, self.asks))


@dataclass(eq=False, kw_only=True)
class CountingSampler(FixedSetSampler):
    """A sampler whose default belief is a `DecayedBeta` with its own `decay`."""

    decay: float = setting(0.5, DECAY_HELP)

    def make_belief(self) -> Belief:
        return DecayedBeta(len(self.keys), decay=self.decay)
