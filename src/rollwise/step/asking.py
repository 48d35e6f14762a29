"""What a step asks of its prompt sampler: prompts, and what is believed of them."""

from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key
from rollwise.step.recipe import StepRecipe


def ask(
    sampler: PromptSampler, count: int | None = None, exclude: Collection[Key] = ()
) -> list[Key]:
    """Ask for a step's prompts, or for `count` further ones.

    Raises:
        TypeError: The answer is no list of keys.
        ValueError: It has a prompt twice, or one of `exclude`; or it is empty, for a step.
    """
    answer: Any = sampler.ask() if count is None else sampler.ask(count, exclude=exclude)
    said = f"{type(sampler.chooser).__name__}.ask returned"
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise TypeError(f"{said} {answer!r}, which is no list of keys")
    keys = list(answer)
    if not keys and (sampler.exhausted or not exclude):
        why = ": each has had all its visits" if sampler.exhausted else ""
        raise ValueError(f"{said} no prompts for a step{why}")
    seen: set[Any] = set(exclude)
    for key in keys:
        if not isinstance(key, str | Integral):
            raise TypeError(f"{said} {key!r}, which is no key: keys are strings and integers")
        if key in seen:
            raise ValueError(f"{said} {key!r} {'although excluded' if key in exclude else 'twice'}")
        seen.add(key)
    return keys


def session_arguments(
    recipe: StepRecipe,
    sampler: PromptSampler,
    keys: Sequence[Key],
    budgets: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return the `priors` and `budgets` of a session, as far as the recipe has any.

    Args:
        recipe: Of the step.
        sampler: Is asked what it believes of the prompts.
        keys: The prompts, P of them.
        budgets: The most draws of each, shape (P,), where a pilot has set them.
    """
    found: dict[str, Any] = {}
    if recipe.uses_priors:
        found["priors"] = sampler.pass_rate_priors(keys)
    if recipe.allocation is not None and not recipe.pilot:
        budgets = recipe.allocation.counts(sampler.expected_pass_rates(keys))
    if recipe.most_draws is not None:
        most = recipe.resolved_schedule.max_samples if budgets is None else budgets
        budgets = np.minimum(most, [recipe.most_draws[key] for key in keys])
    return found if budgets is None else found | {"budgets": budgets}
