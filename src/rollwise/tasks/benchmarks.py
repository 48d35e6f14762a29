"""Benchmarks: known by name, from files, and from the hub."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollwise.config import BUILT_IN_NAMES, ENVIRONMENT, is_made
from rollwise.config.drawing import BenchmarkSettings
from rollwise.environments.procedural import PREFIX
from rollwise.errors import ConfigError, DataError
from rollwise.grading.grader import NO_COLUMNS, Columns
from rollwise.grading.settings import INSTRUCTION
from rollwise.tasks.problem import Problem, with_system_prompt
from rollwise.tasks.procedural import make_from_source
from rollwise.tasks.readers import ProblemSet, read_problems
from rollwise.tasks.running_sums import HELDOUT_SEED
from rollwise.tasks.tables import is_path

BUILT_IN_PROBLEMS = 256

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Benchmark:
    """Where the problems of a benchmark are: a file, or a `split` of a data set on the hub.

    Its figures and files have its `name`. With a `split`, problems are in `problem_column`, and
    answers in `answer`. `asks` says whether an instruction of ours is added below each.
    """

    name: str
    source: str
    split: str | None = None
    problem_column: str = "problem"
    asks: bool = False


_NAMED = (
    Benchmark("gsm8k", "openai/gsm8k", "test", problem_column="question"),
    Benchmark("math500", "HuggingFaceH4/MATH-500", "test"),
    Benchmark("minerva", "weqweasdas/minerva_math", "train"),
    Benchmark("olympiadbench", "weqweasdas/olympiadbench", "train"),
    Benchmark("aime24", "HuggingFaceH4/aime_2024", "train"),
    Benchmark("aime25", "math-ai/aime25", "test"),
    Benchmark("amc23", "math-ai/amc23", "test", problem_column="question"),
    # Reinforce-Ada's: AIME 24 and 25, HMMT 24 and 25, BRUMO 25, AMC 23 and CMIMC 25.
    Benchmark("aime_like", "weqweasdas/aime_hmmt_brumo_cmimc_amc23", "train"),
)
NAMED = {b.name: dataclasses.replace(b, asks=True) for b in _NAMED}
"""The benchmarks that are known by name, each with a column `answer`."""


def find_benchmarks(wanted: Sequence[str]) -> list[Benchmark]:
    """Find benchmarks by name, file, data set on the hub (`owner/name`) or `name=file`."""
    found: dict[str, Benchmark] = {}
    for benchmark in map(_find, wanted):
        if benchmark.name in found:
            raise ConfigError(
                f"`benchmarks`: {benchmark.name} appears twice; give one of them another name, as "
                "in name=file"
            )
        found[benchmark.name] = benchmark
    return list(found.values())


def _find(text: str) -> Benchmark:
    name, equals, file = text.partition("=")
    if equals and _NAME.fullmatch(name) and file:
        return dataclasses.replace(NAMED.get(name, Benchmark(name, "")), source=file, split=None)
    if text in NAMED:
        return NAMED[text]
    if text in (*BUILT_IN_NAMES, ENVIRONMENT):
        return Benchmark(text, text)
    if text.startswith(PREFIX):
        return Benchmark(re.sub(r"[^\w.-]", "-", text), text)
    if is_path(text):
        return Benchmark(re.sub(r"[^\w.-]", "-", Path(text).stem), text)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return Benchmark(text.replace("/", "--"), text)
    raise ConfigError(
        f"`benchmarks`: there is no benchmark {text!r}; there are "
        f"{', '.join([*NAMED, *BUILT_IN_NAMES, ENVIRONMENT])}, "
        "reasoning-gym:TASK, files (.parquet, .jsonl), name=file, and "
        "owner/name for a data set on the hub"
    )


def read_benchmark(
    benchmark: Benchmark,
    settings: BenchmarkSettings,
    instruction: str = INSTRUCTION,
    columns: Columns = NO_COLUMNS,
) -> ProblemSet:
    """Read the problems of a benchmark, each keyed by its text without any instruction.

    So models that are asked in different ways can be compared problem by problem. The grader's
    `instruction` is added below each problem of a benchmark known by name, unless the settings say
    otherwise.

    Raises:
        DataError: It cannot be read, or holds no problem.
        ConfigError: The built-in task does not have that many problems.
    """
    if is_made(benchmark.source):
        count = settings.problems or BUILT_IN_PROBLEMS
        found = ProblemSet.of(make_from_source(benchmark.source, settings, count, HELDOUT_SEED))
    else:
        found = _read(benchmark, settings, columns)
    added = instruction if benchmark.asks else ""
    if settings.instruction is not None:
        added = settings.instruction
    below = "" if benchmark.source.startswith(PREFIX) else added  # it is there
    asked = [_ask(problem, below, settings.system_prompt) for problem in found.problems]
    kept = asked[: settings.problems]
    cut = {"beyond_limit": len(asked) - len(kept), "kept": len(kept)}
    said = "; ".join(filter(None, [found.columns, added and f"instruction: {added}"]))
    return ProblemSet(kept, found.counts | cut, said)


def _read(benchmark: Benchmark, settings: BenchmarkSettings, columns: Columns) -> ProblemSet:
    is_named = benchmark.split is not None
    try:
        found = read_problems(
            benchmark.source,
            split=benchmark.split or settings.split,
            subset=None if is_named else settings.subset,
            problem_column=benchmark.problem_column if is_named else settings.problem_column,
            answer_column="answer" if is_named else settings.answer_column,
            environment=settings.source(),
            columns=columns,
        )
    except DataError as error:
        if is_path(benchmark.source) or benchmark.source == ENVIRONMENT:
            raise
        raise type(error)(f"{error}: --benchmarks {benchmark.name}=FILE") from error
    if not found.problems:
        raise DataError(
            f"the benchmark {benchmark.name} ({benchmark.source}) holds no problem that can be "
            f"used: {found.describe()}"
        )
    return found


def _ask(problem: Problem, instruction: str, system_prompt: str) -> Problem:
    """Put an instruction below a problem and a system message before it; keep its key."""
    messages = list(problem.messages)
    if instruction:  # not below words of the model's that it is to continue
        last = max((i for i, m in enumerate(messages) if m["role"] != "assistant"), default=-1)
        asked = f"{messages[last]['content']}\n\n{instruction}"
        messages[last] = {**messages[last], "content": asked}
    return dataclasses.replace(problem, messages=with_system_prompt(tuple(messages), system_prompt))
