"""The settings of the problems: where they come from, and how they are read and asked."""

from dataclasses import field
from typing import Annotated, Any

from annotated_types import Ge, Le

from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES
from rollwise.config.sections import Held, Section
from rollwise.environments import EnvironmentSource
from rollwise.environments.procedural import PREFIX
from rollwise.sampling.checks import Count

ENVIRONMENT = "environment"
"""The name of `data.environment` as a source of problems."""


def is_made(source: str) -> bool:
    """Return whether a source is made as it is needed: a built-in task, or reasoning-gym's."""
    return source in BUILT_IN_NAMES or source.startswith(PREFIX)


class TrainingSources(Section):
    """Where the problems come from."""

    train: str = BUILT_IN
    """Training problems: `running-sums` or `tool-sums` (built in), a parquet or JSON Lines file,
    `environment`, tasks of reasoning-gym (`reasoning-gym:chain_sum,gcd`), or a data set: its name
    on the hub, or a folder."""
    heldout: str = ""
    """Held-out problems, named the same way; if empty, some training problems."""
    heldout_split: str = "test"
    """Split of a held-out data set on the hub."""


class ReadingSettings(Section):
    """How problems are read and asked."""

    split: str = "train"
    """Split of a data set on the hub."""
    subset: str | None = None
    """Subset of a data set on the hub that has several; default: `main`, if it has that."""
    instruction: str = ""
    """Text added below each problem that is a text, not a conversation."""
    problem_column: str | None = None
    """Column with the problems, if it is not recognized."""
    answer_column: str | None = None
    """Column with the answers, if it is not recognized."""
    system_prompt: str = ""
    """System message of prompts that have none of their own."""
    max_prompt_tokens: Count = 1024
    """Maximum tokens of a prompt; longer ones are skipped and counted."""
    min_terms: Annotated[int, Ge(2), Le(10_000)] = 2
    """Fewest terms of a sum of the built-in task."""
    max_terms: Annotated[int, Ge(2), Le(10_000)] = 10
    """Most terms of a sum of the built-in task."""
    reasoning_gym_prompt: str = "default"
    """Which of reasoning-gym's system prompts its problems are asked with (`default`,
    `DeepSeekZero`, `simple`, `direct` or `chain_of_draft`), unless `system_prompt` is given;
    `plain` has none, and grades the whole response if it has no `<answer>`."""
    environment: str = ""
    """Name of the `verifiers` environment, where problems or grader are `environment`."""
    environment_arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of that environment."""

    def source(self) -> EnvironmentSource:
        """Return the environment that is named."""
        return EnvironmentSource(self.environment, self.environment_arguments)


class DataSettings(ReadingSettings, TrainingSources):
    """The problems."""

    problems: Held = 1024
    """Number of training problems made for the built-in task, or by reasoning-gym."""
