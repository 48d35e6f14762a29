"""What a step asks of its prompt sampler: prompts, and what is believed of them."""

import functools
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollwise.plugins import wrong_result
from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key
from rollwise.step.recipe import StepRecipe


def ask(
    sampler: PromptSampler, count: int | None = None, exclude: Collection[Key] = ()
) -> list[Key]:
    """Ask for a step's prompts, or for `count` further ones.

    Raises:
        PluginError: The answer is no list of keys, has more than `count`, or a prompt twice, or one
            of `exclude`; or it is empty, for a step.
        ValueError: Every prompt has had all its visits.
    """
    answer: Any = sampler.ask() if count is None else sampler.ask(count, exclude=exclude)
    wrong = functools.partial(wrong_result, sampler.chooser, "ask")
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise wrong("a list of keys", answer)
    keys = list(answer)
    if not keys and sampler.exhausted:
        raise ValueError("there are no prompts for a step: each has had all its visits")
    if not keys and not exclude:
        raise wrong("at least one prompt for a step", answer)
    most = count or int(getattr(sampler.chooser, "batch_size", len(keys)))
    if len(keys) > most:
        raise wrong(f"at most {most} keys, not {len(keys)}", answer)
    seen: set[Any] = set(exclude)
    for key in keys:
        if not isinstance(key, str | Integral):
            raise wrong("keys, which are strings and integers", key)
        if key in seen:
            raise wrong("no key that is excluded" if key in exclude else "each key once", key)
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
