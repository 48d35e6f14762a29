"""What a step asks of its prompt sampler: prompts, and what is believed of them."""

import functools
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs.belief import priors_from
from rollwise.plugins import wrong_result
from rollwise.prompts import PromptSampler
from rollwise.sampling import Allocation
from rollwise.sampling.checks import array_from
from rollwise.sampling.draws import Key
from rollwise.step.recipe import StepRecipe


def ask(
    sampler: PromptSampler, count: int | None = None, exclude: Collection[Key] = ()
) -> list[Key]:
    """Ask for a step's prompts, or for `count` further ones.

    Raises:
        PluginError: The answer is not a list of keys, has a prompt twice or one of `exclude`, or is
            empty for a step.
        ValueError: Every prompt has had all its visits.
    """
    answer: Any = sampler.ask() if count is None else sampler.ask(count, exclude=exclude)
    wrong = functools.partial(wrong_result, sampler, "ask")
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise wrong("a list of keys", answer)
    keys = list(answer)
    if not keys and sampler.exhausted:
        raise ValueError("there are no prompts for a step: each has had all its visits")
    if not keys and not exclude:
        raise wrong("at least one prompt for a step", answer)
    seen: set[Any] = set(exclude)
    for key in keys:
        if not isinstance(key, str | Integral):
            raise wrong("keys, which are strings and integers", key)
        if key in seen:
            raise wrong("no key that is excluded" if key in exclude else "each key once", key)
        seen.add(key)
    return keys


def expected_of(sampler: PromptSampler, keys: Sequence[Key]) -> NDArray[np.float64]:
    """Ask a sampler for expected pass rates, shape (P,); a `PluginError` names wrong ones."""
    wanted = f"an array of shape ({len(keys)},) of pass rates, each 0 to 1 or NaN"
    return array_from(
        sampler, "expected_pass_rates", wanted, [keys], (len(keys),), limits=(0, 1), nan=True
    )


def shared_out(
    allocation: Allocation, pass_rates: NDArray[np.float64], least: int = 0
) -> NDArray[np.int64]:
    """Ask an allocation for the draws of each prompt, shape (P,), `least` or more.

    A `PluginError` names a wrong answer.
    """
    most = allocation.maximum
    wanted = f"an array of integers from {least} to {most}, shape {pass_rates.shape}"
    limits, shape = (least, most), pass_rates.shape
    return array_from(allocation, "counts", wanted, [pass_rates], shape, limits, kinds="iu")


def session_arguments(
    recipe: StepRecipe,
    sampler: PromptSampler,
    keys: Sequence[Key],
    budgets: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return the `priors` and `budgets` of a session, as far as the recipe has any.

    `budgets`, the most draws of each prompt, shape (P,), are those that a pilot has set.
    """
    found: dict[str, Any] = {}
    if recipe.uses_priors:
        found["priors"] = priors_from(sampler, "pass_rate_priors", len(keys), keys)
    if recipe.allocation is not None and not recipe.pilot:
        budgets = shared_out(recipe.allocation, expected_of(sampler, keys), least=1)
    if recipe.most_draws is not None:
        most = recipe.resolved_schedule.max_samples if budgets is None else budgets
        budgets = np.minimum(most, [recipe.most_draws[key] for key in keys])
    return found if budgets is None else found | {"budgets": budgets}
