"""What the settings of every command have in common."""

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from rollwise.config.strategies import DEFAULT_STRATEGIES, SHARED_SETTINGS


class CommandConfig(BaseSettings):
    """All settings of a command; an unknown key is an error."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        case_sensitive=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_parse_none_str="none",
    )

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that hang on other settings."""
        return {}

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: dict[str, Any]) -> dict[str, Any]:
        return merge(cls.defaults_for(given), given)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take settings from nowhere but where they are given: no environment, no .env files."""
        return (init_settings,)


def setting(given: Mapping[str, Any], section: str, key: str, default: Any) -> Any:
    """Look a setting of a section up in what was given."""
    values = given.get(section, {})
    return values.get(key, default) if isinstance(values, Mapping) else default


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `above` over `below`, section by section.

    Another strategy takes the place of the one below, whose own settings go with it.
    """
    merged = {**below, **above}
    for name in below.keys() & above.keys():
        lower, upper = below[name], above[name]
        if isinstance(lower, Mapping) and isinstance(upper, Mapping):
            default = DEFAULT_STRATEGIES.get(name)
            replaced = default and upper.get("type", default) != lower.get("type", default)
            if replaced and "type" in upper:
                kept = SHARED_SETTINGS[name].model_fields if name in SHARED_SETTINGS else ()
                lower = {k: v for k, v in lower.items() if k in kept}
            merged[name] = {**lower, **upper}
    return merged
