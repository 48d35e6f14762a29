"""The settings that the recipe of a step declares, and the recipe that settings describe."""

import dataclasses
import re
from functools import reduce
from typing import Any, Self, get_type_hints

from pydantic import Field, create_model, model_validator

from rollwise.config.sections import NO_SOURCE, Section
from rollwise.sampling.selection import Strategy, check_size
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
    """Declare a setting as `StepRecipe` does.

    Args:
        name: Its name in a settings file, such as `schedule.total_draws`.
    """
    field = _FIELDS[name]
    limits = field.metadata["limits"]
    return Field(field.default, description=field.metadata["help"], **limits)


def step_recipe(config: Any) -> StepRecipe:
    """Make the recipe that the settings of `rollwise train` describe.

    Raises:
        ValueError: Settings do not fit each other; names them.
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
        raise ValueError(re.sub(r"`(\w+)`|\b(\w+)=", _as_setting, str(error))) from None


def _as_setting(name: re.Match[str]) -> str:
    setting = _SETTINGS.get(name[1] or name[2])
    return name[0] if setting is None else f"`{setting}`{' = ' if name[2] else ''}"


class _Group(Section):
    """From all responses of a prompt to those that are trained on."""

    size: int
    strategy: Strategy

    @model_validator(mode="after")
    def _size_fits(self) -> Self:
        check_size(self.size, self.strategy)
        return self


class _Step(Section):
    """When a step ends."""


def _section(name: str, base: type[Section]) -> Any:
    """Make a section with a setting for each field of the recipe that names it."""
    hints = get_type_hints(StepRecipe)
    fields: dict[str, Any] = {
        setting.removeprefix(f"{name}."): (hints[field.name], from_recipe(setting))
        for setting, field in _FIELDS.items()
        if setting.startswith(f"{name}.")
    }
    title = f"{name.capitalize()}Settings"
    return create_model(
        title, __base__=base, __doc__=base.__doc__, __cls_kwargs__=NO_SOURCE, **fields
    )


GroupSettings = _section("group", _Group)
StepSettings = _section("step", _Step)
