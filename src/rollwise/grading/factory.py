"""The one place where a grader is made from settings."""

from collections.abc import Mapping
from typing import Any, Protocol

from rollwise.grading.grader import Grader
from rollwise.grading.settings import GraderInputs


class GradingSection(Protocol):
    """The section `grading` of a command's settings."""

    @property
    def timeout(self) -> float:
        """Seconds for one response."""
        ...

    @property
    def workers(self) -> int | None:
        """Processes that grade."""
        ...

    def make(self) -> Any:
        """Return the settings of the grader that `type` names."""
        ...


class DataSection(Protocol):
    """The section `data`, as far as it concerns graders."""

    @property
    def environment(self) -> str:
        """The name of an environment."""
        ...

    @property
    def environment_arguments(self) -> Mapping[str, Any]:
        """What it is opened with."""
        ...


def make_grader(section: GradingSection, data: DataSection, folder: str | None = None) -> Grader:
    """Open the grader that the settings name.

    Args:
        section: The section `grading`.
        data: The section `data`, which names the environment.
        folder: Where modules of the user's may lie, besides the current folder
            (`plugin_folder`).

    Raises:
        ConfigError: The user's function or environment cannot be found, or no sandbox works
            here.
    """
    inputs = GraderInputs(
        section.timeout, section.workers, data.environment, data.environment_arguments, folder
    )
    grader: Grader = section.make().open(inputs)
    return grader
