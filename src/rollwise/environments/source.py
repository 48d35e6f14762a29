"""Opening an environment by its name."""

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rollwise.environments.environment import Environment
from rollwise.errors import ConfigError, RollwiseError, one_line


@dataclass(frozen=True)
class EnvironmentSource:
    """The name of an environment and its arguments; opens it in any process.

    Attributes:
        name: An installed package, as in `verifiers` (`owner/name` too), or a module.
        arguments: Those of `load_environment`, or the settings of a taskset.
        folder: Where a module may be; goes to the front of Python's path, as with `python -m`.
        in_episodes: Its draws are played in several turns; what is opened has `begin`, too.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    folder: str = field(default_factory=os.getcwd)
    in_episodes: bool = False

    def open(self) -> Environment:
        """Open the environment, and restore the handlers of Ctrl-C and SIGTERM.

        Raises:
            ConfigError: No environment has this name, it cannot be loaded, or is not single-turn.
        """
        if not self.name:
            raise ConfigError("`data.environment` must name the environment that is meant")
        if importlib.util.find_spec("verifiers") is None:
            raise ConfigError(
                f"`data.environment` {self.name!r} needs verifiers: pip install "
                "'rollwise[verifiers]'"
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            with _handlers_kept():
                environment: Environment = self._open()
                return environment
        except RollwiseError:
            raise
        except Exception as error:  # its own code runs, which may raise anything
            raise ConfigError(
                f"`data.environment` {self.name!r} cannot be loaded: {one_line(error)}"
            ) from error

    def _open(self) -> Any:
        import verifiers
        from verifiers.v1 import Taskset, import_taskset

        if _exports(import_taskset(self.name), Taskset):
            from rollwise.environments.tasksets import TasksetEnvironment

            if self.in_episodes:
                raise ConfigError(
                    f"`episode.type` must not be `environment` for {self.name!r}: it is a taskset, "
                    "whose turns verifiers plays by programs of their own; classic environments "
                    "(MultiTurnEnv, ToolEnv) can be played, by verifiers 0.3"
                )
            return TasksetEnvironment(self.name, self.arguments)
        if not hasattr(verifiers, "SingleTurnEnv"):
            raise ConfigError(
                f"`data.environment` {self.name!r} exports no taskset, and classic environments "
                f"are no longer in verifiers {verifiers.__version__}: pip install 'verifiers<0.4'"
            )
        if self.in_episodes:
            from rollwise.environments.classic_episodes import ClassicEpisodes

            return ClassicEpisodes(self.name, self.arguments)
        from rollwise.environments.classic import ClassicEnvironment

        return ClassicEnvironment(self.name, self.arguments)


def _exports(module: ModuleType, kind: type) -> bool:
    exported = (getattr(module, name, None) for name in getattr(module, "__all__", ()))
    return any(isinstance(each, type) and issubclass(each, kind) for each in exported)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore the signal handlers that a classic environment replaces when it is made."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
