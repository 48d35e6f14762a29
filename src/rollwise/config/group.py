"""The settings that the recipe of a step declares: their types, defaults, texts and limits."""

import dataclasses
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


def from_recipe(name: str) -> Any:
    """Declare a setting as `StepRecipe` does.

    Args:
        name: Its name in a settings file, such as `schedule.total_draws`.
    """
    field = _FIELDS[name]
    limits = field.metadata["limits"]
    return Field(field.default, description=field.metadata["help"], **limits)


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
