"""From the settings of a run to what its steps need: their recipe, and the prompt sampler."""

import dataclasses
from collections.abc import Mapping, Sequence
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
    columns: Mapping[str, Sequence[Any]],
) -> PromptSampler:
    """Make the prompt sampler that the settings describe, with its belief.

    Args:
        config: The settings.
        keys: The prompts, each once.
        columns: Name -> a value for each prompt, shape (P,): what a belief may take as features. A
            curriculum looks at `level`.

    Raises:
        ConfigError: The settings do not fit these prompts.
    """
    try:
        belief = config.belief.make(
            len(keys), columns, getattr(config.prompts.kind, "belief_kind", None)
        )
    except ValueError as error:
        raise ConfigError(f"`belief`: {error}") from None
    try:
        sampler: PromptSampler = config.prompts.make(
            keys, config.seed, columns.get("level", [None] * len(keys)), belief
        )
    except ValueError as error:
        raise ConfigError(f"`prompts`: {error}") from None
    return sampler
