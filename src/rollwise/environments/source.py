"""Opening an environment by its name."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rollwise.errors import ConfigError, RollwiseError, one_line
from rollwise.releases import unmet

if TYPE_CHECKING:
    from rollwise.environments.tasksets import TasksetEnvironment


@dataclass(frozen=True)
class EnvironmentSource:
    """The name of an environment of verifiers and its arguments; opens it in any process.

    Attributes:
        name: An installed package, as in `verifiers` (`owner/name` too), or a module, also in the
            current folder.
        arguments: The settings of the taskset.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> "TasksetEnvironment":
        """Open the environment.

        Raises:
            ConfigError: No environment has this name, it cannot be loaded, or is not single-turn.
        """
        if not self.name:
            raise ConfigError("`data.environment` must name an environment")
        if reason := unmet("verifiers"):
            raise ConfigError(f"`data.environment` {self.name!r} cannot be opened: {reason}")
        if (folder := os.getcwd()) not in sys.path:
            sys.path.insert(0, folder)
        try:
            from rollwise.environments.tasksets import TasksetEnvironment

            return TasksetEnvironment(self.name, self.arguments)
        except RollwiseError:
            raise
        except Exception as error:  # its own code runs, which may raise anything
            raise ConfigError(
                f"`data.environment` {self.name!r} cannot be loaded: {one_line(error)}"
            ) from error
