"""The settings of the commands that draw responses and train nothing: `evaluate` and `prepare`."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SerializeAsAny, model_validator

from rollwise.config import choices
from rollwise.config.base import SamplingConfig, setting
from rollwise.config.data import ENVIRONMENT, ReadingSettings
from rollwise.config.defaults import drawing_defaults
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, ModelSource
from rollwise.config.sections import AT_A_TIME, Section, chosen
from rollwise.sampling.schedules import MOST_SAMPLES

RANGES = {"all": "[0, 1]", "easy": "(0, 0.313]", "hard": "(0, 0.125]"}
"""Names of ranges of pass rates; `easy` and `hard` are those of Reinforce-Ada."""

_BOUND = r"(\d*\.?\d+)"
_INTERVAL = re.compile(rf"([(\[])\s*{_BOUND}\s*,\s*{_BOUND}\s*([)\]])")


def pass_rate_range(text: str) -> tuple[float, float]:
    """Read a name of `RANGES`, or an interval such as `(0, 0.5]`; both ends are within it."""
    found = _INTERVAL.fullmatch(RANGES.get(text, text).strip())
    if not (found and 0 <= float(found[2]) <= float(found[3]) <= 1):
        raise ValueError(
            f"range should be {', '.join(RANGES)}, or an interval within [0, 1] such as (0, 0.5]; "
            f"it is {text!r}"
        )
    low, high = float(found[2]), float(found[3])
    above = low if found[1] == "[" else math.nextafter(low, 2.0)
    return above, high if found[4] == "]" else math.nextafter(high, -1.0)


class SampledModel(ModelSource):
    """The model that responses are drawn from."""

    path: str = BUILT_IN
    """Draw from this model: `running-sums` or `tool-sums` (built in), a folder with a model and its
    tokenizer, a run of `rollwise train` or one of its checkpoints, or a name on the hub."""


class BenchmarkSettings(ReadingSettings):
    """How the problems of benchmarks are read and asked."""

    instruction: str | None = None
    """Add this below each problem; by default a benchmark given by name asks the model to reason
    step by step and to put the final answer within \\boxed{}, and a file adds nothing."""
    split: str = "test"
    """Take this split of a data set on the hub that is not one of the named benchmarks."""
    subset: str | None = None
    """Take this subset of such a data set that has several."""
    problems: int | None = Field(None, ge=1, le=AT_A_TIME)
    """Take at most this many problems of each benchmark, the first ones; by default all, and 256 of
    the built-in task."""


class DrawConfig(SamplingConfig):
    """Settings that both commands have."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Seed everything random with this."""
    portion: int = Field(64, ge=1, le=AT_A_TIME)
    """Write the responses to this many prompts at a time; a run that is killed and resumed
    draws at most one such portion again."""
    model: SampledModel = SampledModel()
    grading: SerializeAsAny[choices.GradingSection] = chosen()
    engine: SerializeAsAny[choices.EngineSection] = chosen()


class EvaluateConfig(DrawConfig):
    """All settings of `rollwise evaluate`."""

    samples: int = Field(32, ge=1, le=MOST_SAMPLES)
    """Draw this many responses to each problem."""
    benchmarks: list[str] = Field(default_factory=lambda: [BUILT_IN], min_length=1)
    """Evaluate on these: names (`math500`, `minerva`, `olympiadbench`, `aime24`, `aime25`, `amc23`,
    `aime_like`, `running-sums`, `tool-sums`), files, data sets on the hub, or `name=file`."""
    baseline: str = ""
    """Compare with the evaluation in this folder, on the same problems."""
    data: BenchmarkSettings = BenchmarkSettings()

    @model_validator(mode="after")
    def _model_can_read_benchmarks(self) -> Self:
        """Refuse at once what would otherwise be found after the model and benchmark are loaded."""
        foreign = [name for name in self.benchmarks if _is_foreign(name)]
        if self.model.path in BUILT_IN_NAMES and foreign:
            raise ValueError(
                "the built-in models read sums of at most 256 characters, and cannot be evaluated "
                f"on {foreign[0][:80]}: give a model of your own, `--model.path` with a folder or "
                f"a name on the hub, or evaluate on `{self.model.path}`"
            )
        return self

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the model and the benchmarks."""
        own_model = setting(given, "model", "path", BUILT_IN)
        task = own_model if own_model in BUILT_IN_NAMES else "math500"
        benchmarks = given.get("benchmarks") or [_source(given, task)]
        return {"benchmarks": benchmarks, **drawing_defaults(given, benchmarks)}


class Sources(Section):
    """Where the problems come from."""

    sources: list[str] = Field(default_factory=lambda: [BUILT_IN], min_length=1)
    """Read problems from these: parquet or JSON Lines files, data sets on the hub, or
    `running-sums` or `tool-sums` (built in)."""
    split: str = "train"
    """Take this split of a data set on the hub."""
    subset: str | None = None
    """Take this subset of a data set on the hub that has several."""
    instruction: str = ""
    """Add this below each problem (if the file has problems, not prompts)."""


class SourceSettings(ReadingSettings, Sources):
    """Where the problems come from, and how they are read."""

    problems: int = Field(1024, ge=1, le=AT_A_TIME)
    """Make this many problems of the built-in task."""


class SelectionSettings(Section):
    """Which problems are kept."""

    range: str = "all"
    """Keep problems with these pass rates: `all`, `easy` = (0, 0.313], `hard` = (0, 0.125], or an
    interval such as `(0, 0.5]`."""
    check_solutions: bool = True
    """Leave out a problem whose reference solution the grader finds wrong."""

    @model_validator(mode="after")
    def _range_is_one(self) -> Self:
        pass_rate_range(self.range)
        return self


class PrepareConfig(DrawConfig):
    """All settings of `rollwise prepare`."""

    samples: int = Field(16, ge=1, le=MOST_SAMPLES)
    """Draw this many responses to each problem."""
    data: SourceSettings = SourceSettings()
    selection: SelectionSettings = SelectionSettings()

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on the model and the sources."""
        by_default = [_source(given, BUILT_IN)]
        sources = setting(given, "data", "sources", by_default)
        data = {"data": {"sources": by_default}} if by_default != [BUILT_IN] else {}
        return data | drawing_defaults(given, sources)


def _is_foreign(benchmark: str) -> bool:
    """Say whether a benchmark is neither the built-in task nor the user's own problems."""
    is_file = Path(benchmark.rpartition("=")[2]).suffix or os.path.exists(benchmark)
    return benchmark not in (*BUILT_IN_NAMES, ENVIRONMENT) and not is_file


def _source(given: Mapping[str, Any], otherwise: str) -> str:
    return ENVIRONMENT if setting(given, "data", "environment", "") else otherwise
