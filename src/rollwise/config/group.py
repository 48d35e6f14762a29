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


def _group_settings() -> Any:
    hints = get_type_hints(StepRecipe)
    fields: dict[str, Any] = {
        name.removeprefix("group."): (hints[field.name], from_recipe(name))
        for name, field in _FIELDS.items()
        if name.startswith("group.")
    }
    return create_model(
        "GroupSettings", __base__=_Group, __doc__=_Group.__doc__, __cls_kwargs__=NO_SOURCE, **fields
    )


GroupSettings = _group_settings()
"""The section `group`, with a setting for each field of the recipe that names it."""
