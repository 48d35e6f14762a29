"""The problems that the section `data` of a command's settings names."""

from collections.abc import Collection

from rollwise.config.data import DataSettings, ReadingSettings
from rollwise.config.drawing import SourceSettings
from rollwise.errors import ConfigError
from rollwise.tasks.problem import Problem
from rollwise.tasks.readers import ProblemSet, read_problems
from rollwise.tasks.running_sums import make_problems


def make_built_in(
    data: ReadingSettings, count: int, seed: int, excluded: frozenset[str] = frozenset()
) -> list[Problem]:
    """Make `count` problems of the built-in task, none of them with a key that is `excluded`.

    Raises:
        ConfigError: There are not that many.
    """
    try:
        return make_problems(count, data.min_terms, data.max_terms, seed, excluded)
    except ValueError as error:
        raise ConfigError(f"`data`: {error}") from None


def read_source(
    source: str,
    data: DataSettings | SourceSettings,
    split: str,
    columns: Collection[str] = (),
) -> ProblemSet:
    """Read the problems of a source as `data` says; see `read_problems` for the others.

    Raises:
        DataError: They cannot be read.
    """
    return read_problems(
        source,
        split=split,
        subset=data.subset,
        problem_column=data.problem_column,
        answer_column=data.answer_column,
        instruction=data.instruction,
        system_prompt=data.system_prompt,
        environment=data.source(),
        columns=columns,
    )
