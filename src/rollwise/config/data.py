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
    """Train on these problems: `running-sums` or `tool-sums` (built in), a parquet or JSON Lines
    file, `environment`, or a data set's name on the hub."""
    heldout: str = ""
    """Evaluate on these problems, named the same way; if empty, some of the training problems are
    held out."""
    subset: str | None = None
    """Take this subset of a data set on the hub that has several, such as `main` of
    `openai/gsm8k`."""
    split: str = "train"
    """Train on this split of a data set on the hub."""
    heldout_split: str = "test"
    """Evaluate on this split of a held-out data set on the hub."""
    instruction: str = ""
    """Add this below each problem (if the file has problems, not prompts)."""


class ReadingSettings(Section):
    """How problems are read and asked."""

    problem_column: str | None = None
    """Read problems from this column, if it is not `problem`."""
    answer_column: str | None = None
    """Read answers from this column, if it is not `answer`."""
    system_prompt: str = ""
    """Begin each prompt that has no system message of its own with this one."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Leave out prompts of more tokens, and count them."""
    min_terms: int = Field(2, ge=2, le=10_000)
    """Give sums of the built-in task at least this many terms."""
    max_terms: int = Field(10, ge=2, le=10_000)
    """Give sums of the built-in task at most this many terms."""
    environment: str = ""
    """Open this environment of `verifiers`, where `environment` is the source of problems or the
    `grading.type`."""
    environment_arguments: dict[str, Any] = Field(default_factory=dict)
    """Open the environment with these arguments."""

    def source(self) -> EnvironmentSource:
        """Return the environment that is named."""
        return EnvironmentSource(self.environment, self.environment_arguments)


class DataSettings(ReadingSettings, TrainingSources):
    """The problems."""

    problems: int = Field(1024, ge=1, le=AT_A_TIME)
    """Make this many training problems of the built-in task."""
