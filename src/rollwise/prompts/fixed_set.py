"""Samplers over a fixed set of prompts: indices, checks, and states that fit."""

import hashlib
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs import Belief, DecayedBeta
from rollwise.beliefs import state as states
from rollwise.beliefs.belief import priors_from
from rollwise.beliefs.state import Indices, State
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.checks import Count, Share, Whole, array_from, at_least
from rollwise.sampling.draws import Key, index_by_key

Mask = NDArray[np.bool_]
"""One truth value for each prompt, shape (P,), in key order."""

BELIEF = "belief."
"""What the names of the belief's part of a state begin with."""


@dataclass(eq=False)
class FixedSetSampler(PromptSampler):
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

    kept: ClassVar[tuple[str, ...]] = ()
    belief_kind: ClassVar[type[Belief]] = DecayedBeta

    keys: Sequence[Key] = field(repr=False)
    batch_size: Count
    seed: Whole = 0
    belief: Belief = field(default=None, kw_only=True, repr=False)  # type: ignore[assignment]
    visits: Count | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.index = index_by_key(self.keys)
        self.keys = tuple(self.index)
        self.asks = 0
        if self.batch_size > len(self.keys):
            raise ValueError(
                f"batch_size must be at most the number of prompts ({len(self.keys)}), "
                f"got {self.batch_size}"
            )
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
        left_out = np.zeros(total, dtype=bool)
        left_out[self._indices(exclude)] = True
        if self.visits:
            left_out |= self._visited >= self.visits
        wanted = f"an array of indices, shape (P,), from 0 to {total - 1}"
        given, limits = (min(count, total), left_out), (0, total - 1)
        indices = array_from(self, "choose", wanted, given, (None,), limits, kinds="iu")
        self.asks += 1
        return [self.keys[index] for index in indices.tolist()]

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        positives, draws = _integers("correct", correct), _integers("drawn", drawn)
        if not positives.shape == draws.shape == (len(keys),):
            raise ValueError(
                f"correct and drawn must have one count for each of the {len(keys)} keys, got "
                f"shapes {positives.shape} and {draws.shape}"
            )
        indices = self._indices(keys)
        if (wrong := np.flatnonzero((positives < 0) | (positives > draws))).size:
            i = wrong[0]
            raise ValueError(
                f"prompt {keys[i]!r}: correct must lie between 0 and the {draws[i]} drawn, "
                f"got {positives[i]}"
            )
        some = draws > 0
        if some.any():
            self.learn(indices[some], positives[some], draws[some])
        if self.visits:
            self._visited[indices[some]] += 1

    def start_at(self, pass_rate: float) -> None:
        self.belief.start_at(pass_rate)

    @property
    def exhausted(self) -> bool:
        return bool(self.visits and (self._visited >= self.visits).all())

    def metrics(self) -> dict[str, float]:
        return states.metrics_of(self.belief)

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return self.belief.mean(self._indices(keys)).astype(float)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return priors_from(self.belief, "priors", len(keys), self._indices(keys))

    def _indices(self, keys: Iterable[Key]) -> Indices:
        """Return the index of each key; a `ValueError` names keys unknown or given twice."""
        keys = list(keys)
        found = [self.index.get(key, -1) for key in keys]
        if -1 in found:
            unknown = f"{keys[found.index(-1)]!r}"
            raise ValueError(f"not among the {len(self.keys)} prompts of this sampler: {unknown}")
        if len(set(found)) < len(found):
            twice = next(key for i, key in enumerate(keys) if found[i] in found[:i])
            raise ValueError(f"each prompt may be given once, got key {twice!r} twice")
        return np.array(found, dtype=np.int64)

    @property
    def _own_state(self) -> tuple[str, ...]:
        return ("asks", *(() if self.visits is None else ("_visited",)), *self.kept)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all keys in their order, the same in every process."""
        if all(key == index for index, key in enumerate(self.keys)):
            text = f"range {len(self.keys)}"
        else:
            marked = (key if isinstance(key, str) else f"\x1d{key}" for key in self.keys)
            text = "\x1f".join(marked) + "\x1e"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def _identity(self) -> State:
        """Return what a loaded state must share with this sampler."""
        return {
            "sampler": type(self).__name__,
            "prompts": len(self.keys),
            "fingerprint": self.fingerprint,
            "belief": type(self.belief).__name__,
        }

    def state_dict(self) -> State:
        believed = {BELIEF + name: value for name, value in states.saveable(self.belief).items()}
        return self._identity() | states.state_of(self, self._own_state) | believed

    def load_state_dict(self, state: State) -> None:
        states.check_same(state, self._identity(), "another sampler or of other prompts")
        values = states.values_in(self, self._own_state, state)
        believed = {k.removeprefix(BELIEF): v for k, v in state.items() if k.startswith(BELIEF)}
        self.belief.load_state_dict(believed)
        for value in values:
            setattr(*value)

    @abstractmethod
    def choose(self, count: int, exclude: Mask) -> Indices | NDArray[np.int32]:
        """Return the indices of `count` prompts, each once, or of all if fewer are not excluded.

        `exclude` tells of each prompt whether to leave it out, shape (P,).
        """

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

    decay: Share = 0.5
    """Share of a prompt's earlier counts that is kept at each visit (λ); 1 never forgets."""

    def make_belief(self) -> Belief:
        return DecayedBeta(len(self.keys), decay=self.decay)


def smallest(scores: NDArray[np.float64], count: int, exclude: Mask) -> Indices:
    """Return the indices of the `count` smallest scores, best first, ties by index.

    Scores that are infinite or NaN, and excluded ones, are left out; then fewer may be returned.
    """
    scores = np.where(exclude, np.inf, scores)
    count = min(count, int(np.count_nonzero(scores < np.inf)))
    if not count:
        return np.empty(0, dtype=np.int64)
    last = np.partition(scores, count - 1)[count - 1]
    better = np.flatnonzero(scores < last)
    ties = np.flatnonzero(scores == last)[: count - len(better)]
    chosen = np.concatenate([better, ties])
    return chosen[np.argsort(scores[chosen], kind="stable")]


def _integers(name: str, counts: ArrayLike) -> NDArray[np.int64]:
    given = np.asarray(counts)
    with np.errstate(invalid="ignore"):
        integers = given.astype(np.int64) if given.dtype.kind in "iuf" else None
    if given.size == 0:
        return np.empty(given.shape, dtype=np.int64)
    if integers is None or not np.array_equal(integers, given):
        raise TypeError(f"{name} must be integers, got {counts!r}")
    return integers
