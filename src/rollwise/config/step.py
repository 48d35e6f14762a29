"""The settings that the recipe of a step declares; from settings to the recipe and the sampler."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from rollwise.config.sections import Section, declared_in
from rollwise.errors import ConfigError
from rollwise.grading.grader import Columns
from rollwise.grading.settings import inputs_of
from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key
from rollwise.sampling.selection import Strategy
from rollwise.step import StepRecipe
from rollwise.step.recipe import Normalization, ZeroVariance

NAMES = {
    "give_up_below": "exit.give_up_below",
    "group_size": "group.size",
    "strategy": "group.strategy",
    "zero_variance": "group.zero_variance",
    "refills": "group.refills",
    "normalize_advantages": "step.normalize_advantages",
    "normalize_gradients": "step.normalize_gradients",
    "average": "learner.average",
    "positive_threshold": "grading.positive_threshold",
    "seed": "seed",
}
"""Fields of the recipe -> the settings that they are."""

OTHER_NAMES = {"exit_rule": "exit", "objective": "advantage.objective"}
OTHER_NAMES |= {"baseline": "advantage.baseline", "size": "group.size"}
"""What else a recipe's errors name -> what a settings file calls it."""

of_recipe = partial(declared_in, StepRecipe)
"""Declares a setting as a field of the recipe."""


class GroupSettings(Section):
    """From all responses of a prompt to those that are trained on."""

    size: int = of_recipe("group_size")
    strategy: Strategy = of_recipe("strategy")
    zero_variance: ZeroVariance = of_recipe("zero_variance")
    refills: int = of_recipe("refills")


class StepSettings(Section):
    """What is done to all advantages of a step."""

    normalize_advantages: Normalization = of_recipe("normalize_advantages")
    normalize_gradients: bool = of_recipe("normalize_gradients")


def step_recipe(config: Any) -> StepRecipe:
    """Make the recipe that settings describe; a `ValueError` names those that clash."""
    try:
        return StepRecipe(
            exit_rule=config.exit.make(),
            schedule=config.schedule.make(),
            allocation=None if config.allocation.type == "none" else config.allocation.make(),
            objective=config.advantage.make(),
            **{field: attrgetter(name)(config) for field, name in NAMES.items()},
        )
    except ValueError as error:
        said = str(error)
        for field, name in (NAMES | OTHER_NAMES).items():
            said = said.replace(f"`{field}`", f"`{name}`")
        raise ValueError(said) from None


def wanted_columns(config: Any) -> Columns:
    """Return which columns of the data grader, prompt sampler and belief take, and if they must."""
    inputs = inputs_of(config.grading, config.data, config.plugin_folder)
    found: Columns = config.grading.make().columns(inputs)
    if not hasattr(config, "prompts"):
        return found
    of_sampler = {"*": False} if config.prompts.takes("columns") else {}
    return {**dict.fromkeys(config.belief.features or (), False), **of_sampler, **found}


def make_sampler(
    config: Any, keys: Sequence[Key], columns: Mapping[str, Sequence[Any]]
) -> PromptSampler:
    """Make the prompt sampler that the settings of `rollwise train` describe, with its belief.

    `columns` have a value for each prompt, shape (P,): what a belief may take as features, and a
    sampler as `columns`. A curriculum looks at `level`. A `ConfigError` says that the settings do
    not fit these prompts.
    """
    section = "belief"
    try:
        own = getattr(config.prompts.kind, "belief_kind", None)
        belief = config.belief.make(len(keys), columns, own)
        section = "prompts"
        levels = columns.get("level", [None] * len(keys))
        sampler: PromptSampler = config.prompts.make(keys, config.seed, levels, belief, columns)
    except ValueError as error:
        raise ConfigError(f"`{section}`: {error}") from None
    return sampler
