"""The base of all samplers over a fixed set of prompts: places, checks, states that fit."""

import copy
import warnings
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs import Belief, DecayedBeta
from rollwise.beliefs.state import Places, State, part_of_state
from rollwise.prompts.choice import Mask
from rollwise.prompts.index import KeyIndex
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.checks import at_least
from rollwise.sampling.draws import Key

_BELIEF = "belief."


@dataclass(eq=False)
class FixedSetSampler(PromptSampler):
    """A sampler over a fixed set of prompts, which chooses given a belief.

    Write `_choose`, which refers to prompts by their places in the order of the keys, and asks
    `self.belief` what is expected of them. If a sampler keeps more than its belief, write
    `_own_state`, `_load_own_state` and `metrics` too. The fields of a subclass that have a `help`
    are its settings.

    Args:
        keys: The prompts, each once (strings or integers; NumPy's integers become Python's).
        batch_size: Prompts a step, at most as many as there are.
        seed: With the number of asks it makes the random numbers, so that a sampler that resumes
            from a state continues as it would have.
        belief: What is known of pass rates; the sampler updates it. By default one of its own.

    Attributes:
        index: From keys to places.
        asks: Batches asked for so far.

    Raises:
        TypeError: A key that is neither a string nor an integer.
        ValueError: A key twice, a batch larger than the set, or a belief of another number of
            prompts.
    """

    keys: Sequence[Key] = field(repr=False)
    batch_size: int
    seed: int = 0
    belief: Belief = field(default=None, kw_only=True, repr=False)  # type: ignore[assignment]

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
        self.belief = self._make_belief() if self.belief is None else self.belief
        if self.belief.total != len(self.keys):
            raise ValueError(
                f"belief must be of as many prompts as there are ({len(self.keys)}), "
                f"got one of {self.belief.total}"
            )

    def ask(self, count: int | None = None, exclude: Collection[Key] = ()) -> list[Key]:
        """Choose the prompts of the next step, each once.

        Args:
            count: How many; by default `batch_size`.
            exclude: Prompts to leave out. If fewer than `count` remain, fewer are returned.

        Raises:
            ValueError: A count below 1, or a prompt to exclude that is unknown or comes twice.
        """
        return self.ask_unmasked(count, mask_of(self.index, exclude))

    def ask_unmasked(self, count: int | None, excluded: Mask | None) -> list[Key]:
        """Choose as `ask` does, given a mask of prompts to leave out; fast for millions of them.

        Args:
            count: How many; None stands for `batch_size`.
            excluded: Which prompts to leave out, shape (P,), in key order; None for none.
        """
        count = self.batch_size if count is None else count
        at_least("count", count, 1)
        places = self._choose(min(count, len(self.keys)), excluded)
        self.asks += 1
        return self.index.keys_at(places)

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        """Learn how many of the responses drawn for each prompt were correct.

        The prompts need not be those that `ask` returned. One with no draws teaches nothing.

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

    def metrics(self) -> dict[str, float]:
        """Return figures worth a plot; by default those of the belief."""
        return self.belief.metrics()

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return the pass rate expected of each prompt now, shape (P,); NaN if unknown.

        Raises:
            ValueError: A key that is unknown or comes twice.
        """
        return self.belief.mean(self.index.places(keys)).astype(float)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return α and β of what is believed of each pass rate now, shape (P, 2).

        Raises:
            ValueError: A key that is unknown or comes twice.
        """
        return self.belief.priors(self.index.places(keys))

    def difficulties(self, keys: Sequence[Key]) -> NDArray[np.float64] | None:
        """Return the difficulty of each prompt, shape (P,); None if the belief has none."""
        return self.belief.difficulties(self.index.places(keys))

    def state_dict(self) -> State:
        """Return all that is needed to resume, and a fingerprint of the prompts."""
        return {
            "sampler": type(self).__name__,
            "prompts": len(self.keys),
            "fingerprint": self.index.fingerprint,
            "asks": self.asks,
            **self._own_state(),
            "belief": type(self.belief).__name__,
            **{_BELIEF + name: value for name, value in self.belief.state_dict().items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Resume from a state; one that does not fit changes nothing.

        Raises:
            ValueError: The state lacks something, or its prompts, sampler or belief differ.
        """
        check_same_prompts(state, type(self).__name__, self.index)
        resumed = copy.copy(self)
        resumed._load_own_state(state)
        resumed.asks = int(state.get("asks", 0))
        self.belief.load_state_dict(self._belief_state(state))
        vars(self).update(vars(resumed))

    def _belief_state(self, state: State) -> State:
        """Return the belief's part; in states of earlier releases it has no prefix."""
        name = type(self.belief).__name__
        if state.get("belief", name) != name:
            raise ValueError(f"the state is of the belief {state['belief']}, this one is {name}")
        return part_of_state(state, _BELIEF) if "belief" in state else state

    @abstractmethod
    def _choose(self, count: int, exclude: Mask | None) -> Places | NDArray[np.int32]:
        """Choose the places of `count` prompts, each once, none of them excluded."""

    def _make_belief(self) -> Belief:
        """Make the default belief."""
        return DecayedBeta(len(self.keys))

    def _learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Take in the counts of some prompts, shape (P,) each, all with draws."""
        self.belief.learn(places, correct, drawn)

    def _own_state(self) -> State:
        """Return what is needed to resume besides the asks and the belief; copies."""
        return {}

    def _load_own_state(self, state: State) -> None:
        """Set attributes from a state; change nothing in place, so that a failure changes none."""

    def _rng(self) -> np.random.Generator:
        """Return the random numbers of this ask."""
        return np.random.default_rng((self.seed, self.asks))


def mask_of(index: KeyIndex, keys: Collection[Key]) -> Mask | None:
    """Say for each prompt of an index whether it is among `keys`, shape (P,); None if none is.

    Raises:
        ValueError: A key that is unknown or comes twice.
    """
    if isinstance(keys, np.ndarray) and keys.dtype == bool:
        return _given_mask(index, keys)
    if not len(keys):
        return None
    mask = np.zeros(len(index), dtype=bool)
    mask[index.places(list(keys))] = True
    return mask


def _given_mask(index: KeyIndex, mask: Mask) -> Mask:
    warnings.warn("exclude takes keys; a mask is deprecated", DeprecationWarning, stacklevel=4)
    if mask.shape != (len(index),):
        raise ValueError(
            f"exclude must say for each of the {len(index)} prompts whether it is left out, "
            f"got shape {mask.shape}"
        )
    return mask


def counts_by_place(
    index: KeyIndex, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike
) -> tuple[Places, NDArray[np.int64], NDArray[np.int64]]:
    """Check the arguments of `tell`, and leave out the prompts that have no draws.

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
