"""Leave out prompts that were visited often enough."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs.state import (
    Kept,
    State,
    metrics_of,
    named_under,
    part_of_state,
    saveable,
    set_values,
    state_of,
    values_in,
)
from rollwise.prompts.fixed_set import check_same_prompts
from rollwise.prompts.keys import counts_by_index, fingerprint, number
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.checks import at_least
from rollwise.sampling.draws import Key


@dataclass(eq=False)
class VisitLimit(Kept, PromptSampler):
    """Wraps a sampler so that a prompt is asked for at most `visits` times.

    Once every prompt has been, batches are empty.

    Args:
        sampler: Chooses among the prompts left; any `PromptSampler`.
        visits: Of each prompt.
        keys: The prompts, each once; not needed if the wrapped sampler has an attribute `keys`.

    Raises:
        TypeError: `sampler` is no `PromptSampler`, or nothing says what the prompts are.
        ValueError: `visits` is below 1.
    """

    kept = ("_told",)

    sampler: PromptSampler
    visits: int
    keys: Sequence[Key] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, PromptSampler):
            raise TypeError(f"sampler must be a PromptSampler, got {type(self.sampler).__name__}")
        at_least("visits", self.visits, 1)
        keys = self.keys if len(self.keys) else getattr(self.sampler, "keys", ())
        if not len(keys):
            raise TypeError(
                f"{type(self.sampler).__name__} has no attribute `keys`: "
                "say what the prompts are, VisitLimit(sampler, visits, keys)"
            )
        self.index = number(keys)
        self.keys = tuple(self.index)
        self._told = np.full(len(self.keys), 0, dtype=np.int32)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all keys in their order."""
        return fingerprint(self.keys)

    @property
    def chooser(self) -> PromptSampler:
        return self.sampler.chooser

    @property
    def exhausted(self) -> bool:
        return bool((self._told >= self.visits).all())

    def ask(self, count: int | None = None, exclude: Collection[Key] = ()) -> list[Key]:
        done = np.flatnonzero(self._told >= self.visits).tolist()
        return self.sampler.ask(count, exclude={*exclude, *(self.keys[index] for index in done)})

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        indices, _, _ = counts_by_index(self.index, keys, correct, drawn)
        self.sampler.tell(keys, correct, drawn)
        self._told[indices] += 1

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return self.sampler.expected_pass_rates(keys)

    def difficulties(self, keys: Sequence[Key]) -> NDArray[np.float64] | None:
        return self.sampler.difficulties(keys)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return self.sampler.pass_rate_priors(keys)

    def state_dict(self) -> State:
        return {
            "sampler": type(self).__name__,
            "prompts": len(self.keys),
            "fingerprint": self.fingerprint,
            **state_of(self, self.kept),
            **named_under("wrapped", saveable(self.sampler)),
        }

    def load_state_dict(self, state: State) -> None:
        check_same_prompts(state, self)
        values = values_in(self, self.kept, state)
        self.sampler.load_state_dict(part_of_state(state, "wrapped"))
        set_values(values)

    def metrics(self) -> dict[str, float]:
        """Return those of the wrapped sampler."""
        return metrics_of(self.sampler)
