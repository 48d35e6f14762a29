"""Every setting of a run: its name, its default, what it means and what it may be."""

import argparse
import dataclasses
import difflib
import functools
import operator
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rollwise.errors import ConfigError
from rollwise.prompts import (
    CDAS,
    BatchSampler,
    Curriculum,
    Posterior,
    Prioritized,
    Retiring,
    Uniform,
)
from rollwise.sampling import Balanced, FixedCount, PositiveFocused, Rounds
from rollwise.sampling.objectives import Objective
from rollwise.sampling.pool import POSITIVE_THRESHOLD, Key
from rollwise.sampling.schedules import check_reachable
from rollwise.sampling.selection import Strategy, check_size

BUILT_IN = "running-sums"
"""The name of the built-in model and of the built-in task."""


class Section(BaseModel):
    """A part of the settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Choice(Section):
    """One of several strategies, told apart by `type`."""

    type: str

    def own(self) -> dict[str, Any]:
        """Return the settings that are the strategy's own, not common to all."""
        common = {name for kind in (Choice, PromptSettings) for name in kind.model_fields}
        return self.model_dump(exclude=common)


class RuleSettings(Choice):
    """A strategy that is nothing but its settings."""

    def make(self) -> Any:
        """Build the strategy."""
        return STRATEGIES[self.type](**self.own())

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        self.make()
        return self


class PromptSettings(Choice):
    """A prompt sampler: which prompts come next."""

    batch_size: int = Field(64, ge=1)
    """Prompts a step."""
    retire_at: float | None = Field(None, gt=0, le=1)
    """A prompt with this pass rate at `retire_after` visits in a row is not asked again."""
    retire_after: int = Field(2, ge=1, le=255)
    """Visits in a row that retire a prompt, where `retire_at` is set."""

    def make(
        self, keys: Sequence[Key], seed: int, levels: Sequence[int | None]
    ) -> BatchSampler | Retiring:
        """Build the sampler.

        Args:
            keys: The prompts.
            seed: Of all that is random in it.
            levels: The labelled level of each prompt; only a curriculum looks at them.
        """
        labels = {"levels": levels} if self.type == "curriculum" else {}
        kind = STRATEGIES[self.type]
        sampler: BatchSampler = kind(keys, self.batch_size, seed, **self.own(), **labels)
        if self.retire_at is None:
            return sampler
        return Retiring(sampler, self.retire_at, self.retire_after)

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        self.make(range(self.batch_size), 0, [sys.maxsize] * self.batch_size)
        return self


def _one_of(strategies: Mapping[str, type], base: type[Choice]) -> Any:
    """Make a section for each strategy (a dataclass), chosen by `type`.

    Those fields of the strategy that have a `help` in their metadata are its settings, so that
    they are declared once.
    """

    def section(name: str, strategy: type) -> type[Choice]:
        hints = get_type_hints(strategy)
        own: dict[str, Any] = {
            field.name: (
                hints[field.name],
                Field(field.default, description=field.metadata["help"]),
            )
            for field in dataclasses.fields(strategy)
            if "help" in field.metadata
        }
        summary = (strategy.__doc__ or "").splitlines()[0]
        own["type"] = (Literal[name], Field(name, description=summary))
        return create_model(strategy.__name__, __base__=base, __doc__=summary, **own)

    sections = [section(name, strategy) for name, strategy in strategies.items()]
    union = functools.reduce(operator.or_, sections)
    return union if len(sections) == 1 else Annotated[union, Field(discriminator="type")]


PROMPT_SAMPLERS: dict[str, type] = {
    "uniform": Uniform,
    "curriculum": Curriculum,
    "prioritized": Prioritized,
    "cdas": CDAS,
    "posterior": Posterior,
}
EXIT_RULES: dict[str, type] = {
    "balanced": Balanced,
    "positive_focused": PositiveFocused,
    "fixed_count": FixedCount,
}
SCHEDULES: dict[str, type] = {"rounds": Rounds}
STRATEGIES = PROMPT_SAMPLERS | EXIT_RULES | SCHEDULES
DEFAULT_STRATEGIES = {"prompts": "uniform", "exit": "balanced", "schedule": "rounds"}


class ModelSettings(Section):
    """The model that is trained."""

    path: str = BUILT_IN
    """`running-sums` (built in), a folder with a model and its tokenizer, or a name on the hub."""
    device: str = "auto"
    """`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`."""
    cpu_threads: int | None = Field(None, ge=1)
    """Threads of the arithmetic on a CPU; by default as many as `torch` chooses."""
    lora_rank: int = Field(0, ge=0)
    """Train low-rank adapters of this rank instead of all weights; 0 trains all weights."""
    lora_alpha: float = Field(32.0, gt=0)
    """The adapters' scale, divided by their rank."""
    lora_modules: str = "all-linear"
    """The layers that get an adapter: `all-linear`, or names separated by commas."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""


class DataSettings(Section):
    """The problems."""

    train: str = BUILT_IN
    """`running-sums` (built in), a parquet or JSON Lines file, or a data set's name on the hub."""
    heldout: str = ""
    """The same for the held-out problems; empty sets some of the training problems apart."""
    subset: str | None = None
    """The subset of a data set on the hub that has several, such as `main` of `openai/gsm8k`."""
    split: str = "train"
    """The split of a data set on the hub to train on."""
    heldout_split: str = "test"
    """The split of a held-out data set on the hub."""
    problem_column: str | None = None
    """The column with the problem, where it is not `problem`."""
    answer_column: str | None = None
    """The column with the answer, where it is not `answer`."""
    instruction: str = ""
    """Added below each problem (of a file that has problems, not prompts)."""
    system_prompt: str = ""
    """The first message of each prompt that has no system message of its own."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts are left out, and counted."""
    problems: int = Field(1024, ge=1)
    """Built-in task: how many training problems are made."""
    min_terms: int = Field(2, ge=2)
    """Built-in task: the fewest terms of a sum."""
    max_terms: int = Field(10, ge=2)
    """Built-in task: the most terms of a sum."""


class GradingSettings(Section):
    """From a response to its reward."""

    type: Literal["exact", "math", "function"] = "math"
    """`exact`: the text after the last `=` is the answer; `math`: by Math-Verify; `function`."""
    function: str = ""
    """For `function`: `module:function`, called with a response and its reference answer."""
    timeout: float = Field(2.0, gt=0)
    """Seconds for one response; one that takes longer gets no reward (`math`, `function`)."""
    workers: int | None = Field(None, ge=1)
    """Processes that grade (`math`, `function`); by default as many as there are cores."""
    positive_threshold: float = Field(POSITIVE_THRESHOLD, allow_inf_nan=False)
    """A response is correct where its reward is above this."""

    @model_validator(mode="after")
    def _function_is_named(self) -> Self:
        if (self.type == "function") != bool(self.function):
            raise ValueError(
                "type 'function' needs function = 'module:function', and no other type takes one"
            )
        return self


class GroupSettings(Section):
    """From all responses of a prompt to those that are trained on."""

    size: int = Field(4, ge=1)
    """Members of a group, k."""
    strategy: Strategy = "balanced"
    """`balanced`: half correct, half incorrect, where there are enough; `all`: every response."""
    order: Literal["draw", "random"] = "draw"
    """Which members of either kind: the first drawn, or some at random."""
    unresolved: Literal["drop", "keep", "refill"] = "drop"
    """A prompt whose responses all have one reward: left out, kept at advantage 0, or left out
    and made up for by further prompts (DAPO's dynamic sampling)."""
    refills: int = Field(3, ge=1)
    """For `refill`: how often a step draws further prompts, at most."""

    @model_validator(mode="after")
    def _size_fits(self) -> Self:
        check_size(self.size, self.strategy)
        return self


class AdvantageSettings(Section):
    """How much better than expected a response did."""

    objective: Objective = "reference"
    """`reference`: than the mean of all responses drawn; `grpo`: than the mean of the group."""
    scale_by_std: bool = False
    """Divide by the standard deviation of the same rewards."""


class EngineSettings(Section):
    """How responses are drawn."""

    max_new_tokens: int = Field(1024, ge=1)
    """Responses are cut here."""
    temperature: float = Field(1.0, gt=0)
    """Of sampling."""
    batch_size: int = Field(256, ge=1)
    """Responses drawn at a time."""


class LearnerSettings(Section):
    """How the model learns."""

    learning_rate: float = Field(1e-6, gt=0)
    """Of AdamW, after the warm-up."""
    warmup_updates: int = Field(10, ge=0)
    """Updates over which the learning rate rises to its value."""
    weight_decay: float = Field(0.0, ge=0)
    """Of AdamW."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm."""
    mini_batches: int = Field(1, ge=1)
    """Updates a step; each takes an equal share of the step's responses."""
    micro_batch_tokens: int = Field(16384, ge=1)
    """The most tokens in one forward pass, padding counted; less needs less memory."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """The probability ratio is clipped below 1 − this."""
    clip_high: float = Field(0.28, gt=0)
    """And above 1 + this."""
    dual_clip: float = Field(10.0, gt=1)
    """With a negative advantage, a token's loss is at most this many times its size."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""


class EvaluationSettings(Section):
    """How good the model is on held-out problems."""

    every: int = Field(20, ge=0)
    """Steps between evaluations; 0 evaluates only before and after."""
    problems: int = Field(256, ge=1)
    """Held-out problems used, at most."""
    samples: int = Field(8, ge=1)
    """Responses to each; the figures are avg@8 and pass@8."""


class CheckpointSettings(Section):
    """What can be gone on from."""

    every: int = Field(50, ge=0)
    """Steps between checkpoints; 0 writes only the last."""
    keep: int = Field(2, ge=1)
    """The newest checkpoints that are kept."""


class RecordSettings(Section):
    """What is written down."""

    trackers: list[str] = []
    """Where metrics also go, such as `tensorboard` and `wandb` (through `accelerate`)."""
    prompts_per_step: int = Field(4, ge=0)
    """Prompts of each step whose responses are all kept in `samples.parquet`."""


class TrainConfig(BaseSettings):
    """All settings of `rollwise train`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        case_sensitive=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_parse_none_str="none",
    )

    seed: int = Field(0, ge=0)
    """Of everything random in the run."""
    steps: int = Field(100, ge=1)
    """Training steps: draw, grade, learn."""
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    grading: GradingSettings = GradingSettings()
    prompts: _one_of(PROMPT_SAMPLERS, PromptSettings) = Field(  # type: ignore[valid-type]
        default_factory=dict, validate_default=True
    )
    exit: _one_of(EXIT_RULES, RuleSettings) = Field(default_factory=dict, validate_default=True)  # type: ignore[valid-type]
    schedule: _one_of(SCHEDULES, RuleSettings) = Field(default_factory=dict, validate_default=True)  # type: ignore[valid-type]
    group: GroupSettings = GroupSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    engine: EngineSettings = EngineSettings()
    learner: LearnerSettings = LearnerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    records: RecordSettings = RecordSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: dict[str, Any]) -> dict[str, Any]:
        return _merge(_defaults_for(given), given)

    @model_validator(mode="after")
    def _exit_is_reachable(self) -> Self:
        try:
            check_reachable(self.exit.make(), self.schedule.make())
        except ValueError as error:
            raise ValueError(f"`exit` does not fit `schedule`: {error}") from None
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take settings from nowhere but where they are given: no environment, no .env files."""
        return (init_settings,)


def _defaults_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that hang on other settings: on the model, the task and the exit rule."""
    defaults: dict[str, Any] = {}
    if _get(given, "model", "path", BUILT_IN) == BUILT_IN:
        # So small a model gains little by a second thread, and loses much by one that has to wait.
        defaults["model"] = {"cpu_threads": 1}
        defaults["learner"] = {"learning_rate": 2e-4}
        defaults["engine"] = {"max_new_tokens": 48, "batch_size": 512}
    if _get(given, "data", "train", BUILT_IN) == BUILT_IN:
        defaults["grading"] = {"type": "exact"}
    for section, strategy in DEFAULT_STRATEGIES.items():
        defaults[section] = {"type": _get(given, section, "type", strategy)}
    if defaults["exit"]["type"] == "fixed_count":
        samples = _get(given, "exit", "samples", FixedCount.samples)
        defaults["schedule"] = {"type": "rounds", "size": samples, "rounds": 1}
        defaults["group"] = {"size": samples, "strategy": "all", "unresolved": "keep"}
        defaults["advantage"] = {"objective": "grpo", "scale_by_std": True}
    return defaults


def _get(given: Mapping[str, Any], section: str, key: str, default: Any) -> Any:
    values = given.get(section, {})
    return values.get(key, default) if isinstance(values, Mapping) else default


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `above` over `below`, section by section.

    Another strategy takes the place of the one below, whose own settings go with it.
    """
    merged = {**below, **above}
    for name in below.keys() & above.keys():
        lower, upper = below[name], above[name]
        if isinstance(lower, Mapping) and isinstance(upper, Mapping):
            default = DEFAULT_STRATEGIES.get(name)
            replaced = default and upper.get("type", default) != lower.get("type", default)
            if replaced and "type" in upper:
                lower = {k: v for k, v in lower.items() if k in PromptSettings.model_fields}
            merged[name] = {**lower, **upper}
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def add_settings(parser: argparse.ArgumentParser) -> CliSettingsSource[argparse.ArgumentParser]:
    """Give `parser` an option `--section.key` for every setting."""
    return CliSettingsSource(TrainConfig, root_parser=parser)


def make_config(*layers: Mapping[str, Any]) -> TrainConfig:
    """Check settings and fill in the defaults; later layers win.

    Raises:
        ConfigError: Names each unknown key and each bad value, what it must be and what it got.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer)
    try:
        return TrainConfig(**merged)
    except ValidationError as error:
        problems = error.errors()
        # A bad value also spoils the defaults that hang on it; of those the user knows nothing.
        own = [problem for problem in problems if problem["loc"] and problem["loc"][0] in merged]
        raise ConfigError("\n".join(_explain(problem) for problem in own or problems)) from None


def _explain(problem: Mapping[str, Any]) -> str:
    """Say in one line which setting is wrong, what it must be and what it got."""
    place = [str(part) for part in problem["loc"]]
    strategy = ""
    if len(place) > 1 and place[1] in STRATEGIES:
        strategy = place.pop(1)
    key = ".".join(place)
    if problem["type"] == "extra_forbidden":
        return explain_unknown(key, strategy)
    if problem["type"] == "union_tag_invalid":
        kinds, given = problem["ctx"]["expected_tags"].replace("'", "`"), problem["input"]
        return f"`{key}.type`: should be one of {kinds}; it is {given['type']!r}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message.removeprefix("Input ").replace("'", "`")
    subject = f"`{key}`: " if key else ""
    got = "" if isinstance(problem["input"], Mapping) else f"; it is {problem['input']!r}"
    return f"{subject}{message}{got}"


def explain_unknown(key: str, strategy: str = "") -> str:
    """Say that there is no such setting, or none of this strategy, and what may have been meant."""
    names = list(setting_names())
    if key in names:
        return f"`{key}` is not a setting of type `{strategy}`"
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"there is no setting `{key}`{hint}"


def setting_names() -> Iterable[str]:
    """List every setting as `section.key`."""
    for name, field in TrainConfig.model_fields.items():
        sections = sections_of(field.annotation)
        if not sections:
            yield name
        for section in sections:
            yield from (f"{name}.{key}" for key in section.model_fields)


def sections_of(annotation: Any) -> list[type[Section]]:
    """List the sections that a setting may be: one, or one for each strategy."""
    candidates = get_args(annotation) or (annotation,)
    return [c for c in candidates if isinstance(c, type) and issubclass(c, Section)]
