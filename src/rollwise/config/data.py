"""The settings of the problems: where they come from, and how they are read and asked."""

from typing import Any

from pydantic import Field

from rollwise.config.model import BUILT_IN
from rollwise.config.sections import AT_A_TIME, Section
from rollwise.environments import EnvironmentSource

ENVIRONMENT = "environment"
"""The name of `data.environment` as a source of problems."""


class TrainingSources(Section):
    """Where the problems come from."""

    train: str = BUILT_IN
    """`running-sums` or `tool-sums` (built in), a parquet or JSON Lines file, `environment`, or a
    data set's name on the hub."""
    heldout: str = ""
    """The same for the held-out problems; if empty, some of the training problems are held out."""
    subset: str | None = None
    """The subset of a data set on the hub that has several, such as `main` of `openai/gsm8k`."""
    split: str = "train"
    """The split of a data set on the hub to train on."""
    heldout_split: str = "test"
    """The split of a held-out data set on the hub."""
    instruction: str = ""
    """Added below each problem (of a file that has problems, not prompts)."""


class ReadingSettings(Section):
    """How problems are read and asked."""

    problem_column: str | None = None
    """The column with the problem, if it is not `problem`."""
    answer_column: str | None = None
    """The column with the answer, if it is not `answer`."""
    system_prompt: str = ""
    """The first message of each prompt that has no system message of its own."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts are left out, and counted."""
    min_terms: int = Field(2, ge=2, le=10_000)
    """Built-in task: the fewest terms of a sum."""
    max_terms: int = Field(10, ge=2, le=10_000)
    """Built-in task: the most terms of a sum."""
    environment: str = ""
    """An environment of `verifiers` by its name, for `environment` as a source of problems and as
    `grading.type`."""
    environment_arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments."""

    def source(self) -> EnvironmentSource:
        """Return the environment that is named."""
        return EnvironmentSource(self.environment, self.environment_arguments)


class DataSettings(ReadingSettings, TrainingSources):
    """The problems."""

    problems: int = Field(1024, ge=1, le=AT_A_TIME)
    """Built-in task: how many training problems are made."""
