"""The settings that the recipe of a step declares; from settings to the recipe and the sampler."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, get_type_hints

from pydantic import Field, create_model

from rollwise.config.sections import NO_SOURCE, Section
from rollwise.errors import ConfigError
from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key
from rollwise.step import StepRecipe

_FIELDS = {
    field.metadata["setting"]: field
    for field in dataclasses.fields(StepRecipe)
    if "setting" in field.metadata
}

_SETTINGS = {field.name: name for name, field in _FIELDS.items()} | {
    "exit_rule": "exit",
    "objective": "advantage.objective",
    "estimates": "advantage.estimates",
    "baseline": "advantage.baseline",
}
"""Fields of the recipe -> what a settings file calls them."""


def from_recipe(name: str) -> Any:
    """Declare the setting of this name, such as `group.size`, as `StepRecipe` does."""
    field = _FIELDS[name]
    limits = field.metadata["limits"]
    return Field(field.default, description=field.metadata["help"], **limits)


def _section(name: str, summary: str) -> Any:
    """Make a section with a setting for each field of the recipe that names it."""
    hints = get_type_hints(StepRecipe)
    fields: dict[str, Any] = {
        setting.removeprefix(f"{name}."): (hints[field.name], from_recipe(setting))
        for setting, field in _FIELDS.items()
        if setting.startswith(f"{name}.")
    }
    title = f"{name.capitalize()}Settings"
    return create_model(
        title, __base__=Section, __doc__=summary, __cls_kwargs__=NO_SOURCE, **fields
    )


GroupSettings = _section("group", "From all responses of a prompt to those that are trained on.")
StepSettings = _section("step", "When a step ends.")


def step_recipe(config: Any) -> StepRecipe:
    """Make the recipe that the settings of `rollwise train` describe.

    Raises:
        ValueError: Settings do not fit each other; the message names them.
    """
    settings = {
        field.name: reduce(getattr, name.split("."), config) for name, field in _FIELDS.items()
    }
    try:
        return StepRecipe(
            exit_rule=config.exit.make(),
            schedule=config.schedule.make(),
            allocation=None if config.allocation.type == "none" else config.allocation.make(),
            objective=config.advantage.make(),
            **settings,
        )
    except ValueError as error:
        raise ValueError(re.sub(r"`(\w+)`|\b(\w+)=|^(\w+)", _as_setting, str(error))) from None


def _as_setting(name: re.Match[str]) -> str:
    names = _SETTINGS if name[3] is None else _SETTINGS | {"size": "group.size"}
    setting = names.get(name[0].strip("`="))
    return name[0] if setting is None else f"`{setting}`{' = ' if name[2] else ''}"


def make_sampler(
    config: Any, keys: Sequence[Key], columns: Mapping[str, Sequence[Any]]
) -> PromptSampler:
    """Make the prompt sampler that the settings of `rollwise train` describe, with its belief.

    `columns` have a value for each prompt, shape (P,): what a belief may take as features. A
    curriculum looks at `level`.

    Raises:
        ConfigError: The settings do not fit these prompts.
    """
    section = "belief"
    try:
        own = getattr(config.prompts.kind, "belief_kind", None)
        belief = config.belief.make(len(keys), columns, own)
        section = "prompts"
        levels = columns.get("level", [None] * len(keys))
        sampler: PromptSampler = config.prompts.make(keys, config.seed, levels, belief)
    except ValueError as error:
        raise ConfigError(f"`{section}`: {error}") from None
    return sampler
