"""The settings of the commands that draw responses and train nothing: `evaluate` and `prepare`."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, MinLen

from rollwise.config import choices
from rollwise.config.base import SamplingConfig, setting
from rollwise.config.data import ENVIRONMENT, ReadingSettings
from rollwise.config.defaults import drawing_defaults, instruction_of_run, trained_from
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, ModelSource
from rollwise.config.sections import Held, Section
from rollwise.config.step import of_recipe
from rollwise.sampling.schedules import MOST_SAMPLES

RANGES = {"all": "[0, 1]", "easy": "(0, 0.313]", "hard": "(0, 0.125]"}
"""Names of ranges of pass rates; `easy` and `hard` are those of Reinforce-Ada."""

_INTERVAL = re.compile(r"([(\[])\s*(\d*\.?\d+)\s*,\s*(\d*\.?\d+)\s*([)\]])")


def pass_rate_range(text: str) -> tuple[float, float]:
    """Read a name of `RANGES`, or an interval such as `(0, 0.5]`; both ends are within it."""
    found = _INTERVAL.fullmatch(RANGES.get(text, text).strip())
    if not (found and 0 <= float(found[2]) <= float(found[3]) <= 1):
        names = ", ".join(RANGES)
        raise ValueError(
            f"`range` must be {names}, or an interval within [0, 1] such as (0, 0.5]; it is {text}"
        )
    low, high = float(found[2]), float(found[3])
    above = low if found[1] == "[" else math.nextafter(low, 2.0)
    return above, high if found[4] == "]" else math.nextafter(high, -1.0)


class SampledModel(ModelSource):
    """The model that responses are drawn from."""

    path: str = BUILT_IN
    """The model: `running-sums` or `tool-sums` (built in), a folder with a model and its tokenizer,
    a run of `rollwise train` or one of its checkpoints, or a name on the hub."""


class BenchmarkSettings(ReadingSettings):
    """How the problems of benchmarks are read and asked."""

    meant = "benchmarks"

    instruction: str | None = None  # type: ignore[assignment]
    """Text added below each problem; default: that of the run, if the model is one's, or else for
    a named benchmark, to reason step by step and put the final answer within \\boxed{}."""
    split: str = "test"
    """Split of a data set on the hub that is not a named benchmark."""
    problems: Held | None = None
    """Maximum problems of each benchmark; default: all, and 256 of those that are made."""


class DrawConfig(SamplingConfig):
    """Settings that both commands have."""

    seed: int = of_recipe("seed")
    portion: Held = 64
    """Prompts after which responses are saved; a crash loses at most that much."""
    model: SampledModel
    grading: choices.GradingSection
    engine: choices.EngineSection


class EvaluateConfig(DrawConfig):
    """All settings of `rollwise evaluate`."""

    samples: Annotated[int, Ge(1), Le(MOST_SAMPLES)] = 32
    """Responses per problem."""
    benchmarks: Annotated[list[str], MinLen(1)] = field(default_factory=lambda: [BUILT_IN])
    """Benchmarks: names (`gsm8k`, `math500`, `minerva`, `olympiadbench`, `aime24`, `aime25`,
    `amc23`, `aime_like`, `running-sums`, `tool-sums`), files, data sets, `name=file`, or tasks of
    reasoning-gym (`reasoning-gym:chain_sum,gcd`)."""
    baseline: str = ""
    """Folder of another evaluation to compare with, on the same problems."""
    data: BenchmarkSettings

    def _check(self) -> None:
        """Refuse at once what would otherwise be found after the model and benchmark are loaded."""
        foreign = [name for name in self.benchmarks if _is_foreign(name)]
        model = trained_from(self.model.path)
        if model in BUILT_IN_NAMES and foreign:
            raise ValueError(
                f"the built-in model `{self.model.path}` reads only sums of at most 256 characters "
                f"and cannot be evaluated on {foreign[0][:80]}: that is neither a file nor a "
                f"built-in task. Give another `--model.path`, or `--benchmarks {model}`"
            )

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the model and the benchmarks."""
        model = trained_from(str(setting(given, "model", "path", BUILT_IN)))
        task = model if model in BUILT_IN_NAMES else "math500"
        benchmarks = given.get("benchmarks") or [_source(given, task)]
        asked = {"data": {"instruction": instruction_of_run(given)}}
        return {"benchmarks": benchmarks, **asked, **drawing_defaults(given, benchmarks)}


class SourceSettings(ReadingSettings):
    """Where the problems come from, and how they are read."""

    meant = "data.sources"

    sources: Annotated[list[str], MinLen(1)] = field(default_factory=lambda: [BUILT_IN])
    """Parquet or JSON Lines files, data sets on the hub, `running-sums`, `tool-sums`, or
    tasks of reasoning-gym (`reasoning-gym:chain_sum,gcd`)."""
    problems: Held = 1024
    """Number of problems made for the built-in task, or by reasoning-gym."""


class SelectionSettings(Section):
    """Which problems are kept."""

    range: str = "all"
    """Pass rates to keep: `all`, `easy` = (0, 0.313], `hard` = (0, 0.125], or as in `(0, 0.5]`."""
    check_solutions: bool = True
    """Whether problems are left out whose reference solution the grader finds wrong."""

    def _check(self) -> None:
        pass_rate_range(self.range)


class PrepareConfig(DrawConfig):
    """All settings of `rollwise prepare`."""

    samples: Annotated[int, Ge(0), Le(MOST_SAMPLES)] = 16
    """Responses per problem. With 0, problems are only cleaned: no model is loaded."""
    data: SourceSettings
    selection: SelectionSettings

    def _check(self) -> None:
        if not self.samples and self.selection.range != "all":
            raise ValueError(
                "`selection.range` chooses by pass rates, which `samples = 0` has none of"
            )

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the model and the sources."""
        by_default = [_source(given, BUILT_IN)]
        sources = setting(given, "data", "sources", by_default)
        data = {"data": {"sources": by_default}} if by_default != [BUILT_IN] else {}
        return data | drawing_defaults(given, sources)


def _is_foreign(benchmark: str) -> bool:
    """Return whether a benchmark is neither the built-in task nor the user's own problems."""
    is_file = Path(benchmark.rpartition("=")[2]).suffix or os.path.exists(benchmark)
    return benchmark not in (*BUILT_IN_NAMES, ENVIRONMENT) and not is_file


def _source(given: Mapping[str, Any], otherwise: str) -> str:
    return ENVIRONMENT if setting(given, "data", "environment", "") else otherwise
