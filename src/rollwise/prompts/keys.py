"""Prompts by their keys: the position of each in a fixed set, and the counts given to `tell`."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs.state import Indices
from rollwise.sampling.draws import Key

Mask = NDArray[np.bool_]
"""One truth value for each prompt, shape (P,), in key order."""

_BLOCK = 1 << 16


def indices_of(index: Mapping[Key, int], keys: Iterable[Key]) -> Indices:
    """Find the index of each key, shape (P,); a `ValueError` names keys unknown or given twice."""
    keys = list(keys)
    found = [index.get(key, -1) for key in keys]
    if -1 in found:
        unknown = keys[found.index(-1)]
        raise ValueError(f"not among the {len(index)} prompts of this sampler: {unknown!r}")
    if len(set(found)) < len(found):
        twice = next(key for i, key in enumerate(keys) if found[i] in found[:i])
        raise ValueError(f"each prompt may be given once, got key {twice!r} twice")
    return np.array(found, dtype=np.int64)


def marked(mask: Mask | None, indices: Indices, total: int) -> Mask | None:
    """Add the prompts at `indices` to a mask of `total`; None stands for an empty one."""
    if not len(indices):
        return mask
    mask = np.zeros(total, dtype=bool) if mask is None else mask.copy()
    mask[indices] = True
    return mask


def allowed(total: int, exclude: Mask | None) -> Indices:
    """Return the indices of all prompts that are not excluded."""
    return np.arange(total) if exclude is None else np.flatnonzero(~exclude)


def fingerprint(keys: Sequence[Key]) -> str:
    """Hash all keys in their order; the result is the same in every process."""
    digest = hashlib.blake2b(digest_size=8)
    if all(key == index for index, key in enumerate(keys)):
        digest.update(f"range {len(keys)}".encode())
        return digest.hexdigest()
    for start in range(0, len(keys), _BLOCK):
        block = (key if isinstance(key, str) else f"\x1d{key}" for key in keys[start:][:_BLOCK])
        digest.update("\x1f".join(block).encode("utf-8", "surrogatepass") + b"\x1e")
    return digest.hexdigest()


def counts_by_index(
    index: Mapping[Key, int], keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike
) -> tuple[Indices, NDArray[np.int64], NDArray[np.int64]]:
    """Check the arguments of `tell`, and leave out the prompts that have no draws.

    Returns indices, correct and drawn, shape (P,) each. A TypeError or a ValueError names the
    prompt and what is wrong.
    """
    positives, draws = _integers("correct", correct), _integers("drawn", drawn)
    if not positives.shape == draws.shape == (len(keys),):
        raise ValueError(
            f"correct and drawn must have one count for each of the {len(keys)} keys, got shapes "
            f"{positives.shape} and {draws.shape}"
        )
    indices = indices_of(index, keys)
    wrong = np.flatnonzero((positives < 0) | (positives > draws))
    if wrong.size:
        i = wrong[0]
        raise ValueError(
            f"prompt {keys[i]!r}: correct must lie between 0 and the {draws[i]} drawn, "
            f"got {positives[i]}"
        )
    some = draws > 0
    return indices[some], positives[some], draws[some]


def _integers(name: str, counts: ArrayLike) -> NDArray[np.int64]:
    given = np.asarray(counts)
    with np.errstate(invalid="ignore"):
        integers = given.astype(np.int64) if given.dtype.kind in "iuf" else None
    if given.size == 0:
        return np.empty(given.shape, dtype=np.int64)
    if integers is None or not np.array_equal(integers, given):
        raise TypeError(f"{name} must be integers, got {counts!r}")
    return integers
