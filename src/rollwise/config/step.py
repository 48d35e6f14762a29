"""From the settings of a run to what its steps need: their recipe, and the prompt sampler."""

import dataclasses
from collections.abc import Sequence
from functools import reduce
from typing import Any

from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError
from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key
from rollwise.step import StepRecipe


def step_recipe(config: TrainConfig) -> StepRecipe:
    """Make the recipe that the settings describe; its fields name their settings."""
    settings: dict[str, Any] = {
        field.name: reduce(getattr, field.metadata["setting"].split("."), config)
        for field in dataclasses.fields(StepRecipe)
        if "setting" in field.metadata
    }
    return StepRecipe(
        exit_rule=config.exit.make(),
        schedule=config.schedule.make(),
        allocation=None if config.allocation.type == "none" else config.allocation.make(),
        objective=config.advantage.make(),
        **settings,
    )


def make_sampler(
    config: TrainConfig,
    keys: Sequence[Key],
    levels: Sequence[int | None],
    measured: Sequence[tuple[float, float]] = (),
) -> PromptSampler:
    """Make the prompt sampler that the settings describe, with its belief.

    Args:
        config: The settings.
        keys: The prompts, each once.
        levels: The labelled level of each, shape (P,); None where it has none.
        measured: Correct and all responses drawn to each beforehand, shape (P, 2); 0 and 0 where
            none were. Only `belief.prior` = `pass_rate` looks at them.

    Raises:
        ConfigError: The settings do not fit these prompts.
    """
    try:
        belief = config.belief.make(len(keys), levels, measured)
    except ValueError as error:
        raise ConfigError(f"`belief`: {error}") from None
    try:
        sampler: PromptSampler = config.prompts.make(keys, config.seed, levels, belief)
    except ValueError as error:
        raise ConfigError(f"`prompts`: {error}") from None
    return sampler
