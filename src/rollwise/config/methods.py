"""What the settings of commands that set methods side by side have in common."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rollwise.config.base import CommandConfig, merge
from rollwise.config.reading import make_config
from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError


class MethodsConfig(CommandConfig):
    """Settings of `rollwise train` for each of several methods."""

    base: dict[str, Any] = Field(default_factory=dict)
    """Give all methods these settings of `rollwise train`."""
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Give each method, by its name, these settings over those of `base`."""

    def _given(self, method: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
        """Lay out what is given of the settings of a method's run."""
        own = {key: v for key, v in self.methods[method].items() if key not in ("choose", "seeds")}
        folder = {} if self.plugin_folder is None else {"plugin_folder": self.plugin_folder}
        return merge(self.base, own, *layers, folder)

    @staticmethod
    def _checked(method: str, given: Mapping[str, Any]) -> TrainConfig:
        try:
            return make_config(given)
        except ConfigError as error:
            raise ConfigError(f"method `{method}`: {error}") from None
