"""What all samplers here share: keys and places, checks, and states that fit their prompts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rollwise.prompts.choice import Mask, Places
from rollwise.prompts.index import KeyIndex
from rollwise.prompts.sampler import State
from rollwise.sampling.checks import at_least
from rollwise.sampling.pool import Key

EXPECTATION_WEIGHT = 4.0
"""For how many responses an expected pass rate counts, where it does not say what it rests on.

It rests on one visit at least, so on a group of about 4; whatever else it rests on is older, of a
policy that has moved on. So few give way to the responses of one round, and rule no pass rate out:
with an expected 0, the next response is still correct with probability 1/6.
"""


@dataclass(eq=False)
class BatchSampler(ABC):
    """A sampler over a fixed set of prompts; a subclass says how it chooses and what it learns.

    The fields of a subclass that have a `help` are its settings. Write `_choose`, and `_learn`,
    `_own_state`, `_load_own_state` and `metrics` where there is something to them; prompts are
    known to them by their places in the order of the keys.

    Args:
        keys: The prompts, each once (strings or integers; NumPy's integers become Python's).
        batch_size: Prompts a step, at most as many as there are.
        seed: Of all that is random; with the number of asks it makes the random numbers, so that
            a sampler that goes on from a state goes on exactly.

    Attributes:
        index: From keys to places.
        asks: Batches asked for so far.

    Raises:
        TypeError: A key that is neither a string nor an integer.
        ValueError: A key twice, or a batch larger than the set.
    """

    keys: Sequence[Key] = field(repr=False)
    batch_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("batch_size", self.batch_size, 1)
        at_least("seed", self.seed, 0)
        self.index = KeyIndex(self.keys)
        self.keys = self.index.keys
        self.asks = 0
        if self.batch_size > len(self.keys):
            raise ValueError(
                f"batch_size must be at most the number of prompts ({len(self.keys)}), "
                f"got {self.batch_size}"
            )

    def ask(self, count: int | None = None, exclude: Mask | None = None) -> list[Key]:
        """Choose the prompts of the next step, each once.

        Args:
            count: How many; by default `batch_size`.
            exclude: Prompts to leave out, shape (P,), in key order. Where too few are left, fewer
                than `count` come back.
        """
        count = self.batch_size if count is None else count
        at_least("count", count, 1)
        if exclude is not None and np.shape(exclude) != (len(self.keys),):
            raise ValueError(
                f"exclude must say for each of the {len(self.keys)} prompts whether it is left "
                f"out, got shape {np.shape(exclude)}"
            )
        if exclude is not None:
            exclude = np.asarray(exclude, dtype=bool)
        places = self._choose(min(count, len(self.keys)), exclude)
        self.asks += 1
        return self.index.keys_at(places)

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        """Learn how many of the responses drawn for each prompt were correct.

        The prompts need not be those that were asked. One with no draws teaches nothing.

        Args:
            keys: The prompts of a step, each once.
            correct: The number of correct responses of each, shape (P,).
            drawn: The number of all responses of each, shape (P,).

        Raises:
            TypeError: Counts that are not integers.
            ValueError: A key that is unknown or comes twice, or a count below 0 or above `drawn`.
        """
        places, positives, draws = counts_by_place(self.index, keys, correct, drawn)
        if places.size:
            self._learn(places, positives, draws)

    def state_dict(self) -> State:
        """Return all that is needed to go on, and what says which prompts it is of."""
        return {
            "sampler": type(self).__name__,
            "prompts": len(self.keys),
            "fingerprint": self.index.fingerprint,
            "asks": self.asks,
            **self._own_state(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from a state; one that does not fit changes nothing.

        Raises:
            ValueError: Says what the state lacks, or how its prompts or sampler differ.
        """
        check_same_prompts(state, type(self).__name__, self.index)
        self._load_own_state(state)
        self.asks = int(state.get("asks", 0))

    def metrics(self) -> dict[str, float]:
        """Return figures worth a plot; by default none."""
        return {}

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Say what pass rate is expected of each prompt now, shape (P,).

        By default NaN: nothing is believed.

        Raises:
            ValueError: A key that is unknown or comes twice.
        """
        return np.full(len(self.index.places(keys)), np.nan)

    def difficulties(self, keys: Sequence[Key]) -> NDArray[np.float64] | None:
        """Return the difficulty of some prompts, shape (P,); None for a sampler that has none."""
        return None

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Say what is believed of each pass rate now: α and β of a Beta distribution, shape (P, 2).

        By default an expected pass rate counts as `EXPECTATION_WEIGHT` responses; where none is
        expected, α = β = 1: nothing is believed.

        Raises:
            ValueError: A key that is unknown or comes twice.
        """
        return priors_around(self.expected_pass_rates(keys))

    @abstractmethod
    def _choose(self, count: int, exclude: Mask | None) -> Places | NDArray[np.int32]:
        """Choose the places of `count` prompts, each once, none of them excluded."""

    def _learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:  # noqa: B027
        """Take in the counts of some prompts, shape (P,) each, all with draws."""

    def _own_state(self) -> State:
        return {}

    def _load_own_state(self, state: State) -> None:  # noqa: B027
        """Check all of `state` first, then go over to it."""

    def _rng(self) -> np.random.Generator:
        """Return the random numbers of this ask."""
        return np.random.default_rng((self.seed, self.asks))


def priors_around(expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return α = 1 + w·p̂ and β = 1 + w·(1 − p̂), w = `EXPECTATION_WEIGHT`, shape (P, 2).

    Args:
        expected: p̂ of each prompt, shape (P,); NaN, where there is none, gives α = β = 1.
    """
    responses = EXPECTATION_WEIGHT * np.stack([expected, 1.0 - expected], axis=1)
    return 1.0 + np.where(np.isnan(responses), 0.0, responses)


def counts_by_place(
    index: KeyIndex, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike
) -> tuple[Places, NDArray[np.int64], NDArray[np.int64]]:
    """Check what a sampler is told, and leave out the prompts that have no draws.

    Returns:
        Places, correct and drawn, shape (P,) each.

    Raises:
        TypeError: Counts that are not integers.
        ValueError: Names the prompt and what is wrong.
    """
    positives, draws = _integers("correct", correct), _integers("drawn", drawn)
    if not positives.shape == draws.shape == (len(keys),):
        raise ValueError(
            f"correct and drawn must have one count for each of the {len(keys)} keys, got shapes "
            f"{positives.shape} and {draws.shape}"
        )
    places = index.places(keys)
    wrong = np.flatnonzero((positives < 0) | (positives > draws))
    if wrong.size:
        i = wrong[0]
        raise ValueError(
            f"prompt {keys[i]!r}: correct must lie between 0 and the {draws[i]} drawn, "
            f"got {positives[i]}"
        )
    some = draws > 0
    return places[some], positives[some], draws[some]


def _integers(name: str, counts: ArrayLike) -> NDArray[np.int64]:
    given = np.asarray(counts)
    with np.errstate(invalid="ignore"):
        integers = given.astype(np.int64) if given.dtype.kind in "iuf" else None
    if given.size == 0:
        return np.empty(given.shape, dtype=np.int64)
    if integers is None or not np.array_equal(integers, given):
        raise TypeError(f"{name} must be integers, got {counts!r}")
    return integers


def check_same_prompts(state: State, sampler: str, index: KeyIndex) -> None:
    """Refuse a state of another kind of sampler or of other prompts.

    Raises:
        ValueError: Says what differs.
    """
    kind = str(state.get("sampler", sampler))
    if kind != sampler:
        raise ValueError(f"the state is of the sampler {kind}, this one is {sampler}")
    prompts = int(state.get("prompts", len(index)))
    if prompts != len(index):
        raise ValueError(
            f"the state is of a sampler over {prompts} prompts, this one has {len(index)}"
        )
    fingerprint = str(state.get("fingerprint", index.fingerprint))
    if fingerprint != index.fingerprint:
        raise ValueError(
            f"the state is of {prompts} other prompts, or of these in another order: their "
            f"fingerprint is {fingerprint}, that of this sampler's keys {index.fingerprint}"
        )


def from_state(state: State, name: str) -> Any:
    """Take a value out of a state.

    Raises:
        ValueError: Names what the state lacks.
    """
    if name not in state:
        raise ValueError(f"the state lacks {name!r}; it has {', '.join(sorted(state))}")
    return state[name]


def array_from_state(state: State, name: str, length: int, dtype: DTypeLike) -> NDArray[Any]:
    """Copy an array out of a state.

    Raises:
        ValueError: It is lacking, or is of another number of prompts.
    """
    values = np.array(from_state(state, name), dtype=dtype)
    if values.shape != (length,):
        raise ValueError(
            f"the state is of a sampler over {values.size} prompts, this one has {length}: "
            f"{name!r} has shape {values.shape}"
        )
    return values
