"""The one place where a grader is made from settings."""

from typing import Any

from rollwise.grading.grader import Grader
from rollwise.grading.settings import GraderInputs


def make_grader(section: Any, data: Any, folder: str | None = None) -> Grader:
    """Open the grader that the settings name.

    Args:
        section: The section `grading`: `timeout`, `workers`, and `make()`, which returns the
            `GraderSettings` that `type` names.
        data: The section `data`: `environment` and `environment_arguments`.
        folder: Where modules of the user's may lie, besides the current folder
            (`plugin_folder`).

    Raises:
        ConfigError: The user's function or environment cannot be found, or no sandbox works here.
    """
    inputs = GraderInputs(
        section.timeout, section.workers, data.environment, data.environment_arguments, folder
    )
    grader: Grader = section.make().open(inputs)
    return grader
