"""The problems that the section `data` of a command's settings names."""

from collections.abc import Collection

from rollwise.config.data import DataSettings, ReadingSettings
from rollwise.config.drawing import SourceSettings
from rollwise.errors import ConfigError, DataError
from rollwise.tasks.problem import Problem
from rollwise.tasks.readers import ProblemSet, read_problems
from rollwise.tasks.running_sums import make_problems

FIRST = 64
"""Rows that are read of a file to find out whether it can be used."""


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
    most: int | None = None,
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
        most=most,
    )


def read_first(source: str, data: DataSettings | SourceSettings) -> ProblemSet:
    """Read the first problems of a file, to find soon what is wrong with all of them.

    Raises:
        DataError: The file cannot be read, or its columns fit no schema.
    """
    try:
        return read_source(source, data, "", most=FIRST)
    except DataError:  # in JSON Lines, later rows may have columns that the first ones lack
        return read_source(source, data, "")
