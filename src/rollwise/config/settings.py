"""Every setting of a run: its name, its default, what it means and what it may be."""

from collections.abc import Mapping
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, model_validator

from rollwise.config.base import CommandConfig, setting
from rollwise.config.strategies import (
    ALLOCATIONS,
    DEFAULT_STRATEGIES,
    EXIT_RULES,
    PROMPT_SAMPLERS,
    SCHEDULES,
    ExitSettings,
    PromptSettings,
    RuleSettings,
    ScheduleSettings,
    Section,
    one_of,
)
from rollwise.sampling import Estimated, FixedCount
from rollwise.sampling.objectives import EstimateMethod, Objective, check_objective
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.sampling.schedules import check_reachable
from rollwise.sampling.selection import Strategy, check_size

BUILT_IN = "running-sums"
"""The name of the built-in model and of the built-in task."""

ENVIRONMENT = "environment"
"""What a source of problems is called that is the environment of `data.environment`."""


class ModelSource(Section):
    """A model, and where it is run."""

    path: str = BUILT_IN
    """`running-sums` (built in), a folder with a model and its tokenizer, or a name on the hub."""
    device: str = "auto"
    """`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`."""
    cpu_threads: int | None = Field(None, ge=1)
    """Threads of the arithmetic on a CPU; by default as many as `torch` chooses."""


class ModelSettings(ModelSource):
    """The model that is trained."""

    lora_rank: int = Field(0, ge=0)
    """Train low-rank adapters of this rank instead of all weights; 0 trains all weights."""
    lora_alpha: float = Field(32.0, gt=0)
    """The adapters' scale, divided by their rank."""
    lora_modules: str = "all-linear"
    """The layers that get an adapter: `all-linear`, or names separated by commas."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""


class BackendSettings(Section):
    """Where the model is and learns."""

    type: Literal["local", "tinker"] = "local"
    """`local`: in this process, with the engine beside it; `tinker`: at Tinker, which draws too."""


class TinkerSettings(Section):
    """Tinker (`backend.type = "tinker"`); address and key come from the environment."""

    base_model: str = ""
    """The model's name there, where it is not `model.path`."""
    loss: Literal["ppo", "importance_sampling"] = "ppo"
    """`ppo`: clipped by `learner.clip_low` and `clip_high`; `importance_sampling`: not clipped."""
    max_steps_off_policy: int = Field(0, ge=0)
    """Steps that may be drawn from weights which lack the updates of so many steps before, while
    these are under way; 0 learns from each step before the next is drawn."""
    draw_timeout: float = Field(3600.0, gt=0)
    """Seconds for one response, waiting in Tinker's queue included; one that takes longer is drawn
    again, a few times at most."""


class TrainingSources(Section):
    """Where the problems come from."""

    train: str = BUILT_IN
    """`running-sums` (built in), a parquet or JSON Lines file, `environment`, or a data set's name
    on the hub."""
    heldout: str = ""
    """The same for the held-out problems; empty sets some of the training problems apart."""
    subset: str | None = None
    """The subset of a data set on the hub that has several, such as `main` of `openai/gsm8k`."""
    split: str = "train"
    """The split of a data set on the hub or of an environment to train on."""
    heldout_split: str = "test"
    """The split of a held-out data set on the hub or of an environment."""
    instruction: str = ""
    """Added below each problem (of a file that has problems, not prompts)."""


class ReadingSettings(Section):
    """How problems are read and asked."""

    problem_column: str | None = None
    """The column with the problem, where it is not `problem`."""
    answer_column: str | None = None
    """The column with the answer, where it is not `answer`."""
    system_prompt: str = ""
    """The first message of each prompt that has no system message of its own."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts are left out, and counted."""
    min_terms: int = Field(2, ge=2)
    """Built-in task: the fewest terms of a sum."""
    max_terms: int = Field(10, ge=2)
    """Built-in task: the most terms of a sum."""
    environment: str = ""
    """A single-turn environment of `verifiers` by its name, for `environment` as a source of
    problems and as `grading.type`."""
    environment_arguments: dict[str, Any] = Field(default_factory=dict)
    """What it is opened with."""


class DataSettings(ReadingSettings, TrainingSources):
    """The problems."""

    problems: int = Field(1024, ge=1)
    """Built-in task: how many training problems are made."""


class GradingSettings(Section):
    """From a response to its reward."""

    type: Literal["exact", "math", "code", "function", "environment"] = "math"
    """`exact`: the text after the last `=` is the answer; `math`: by Math-Verify; `code`: by
    running it against the problem's tests; `function`; `environment`: by `data.environment`."""
    function: str = ""
    """For `function`: `module:function`, of a response and its reference answer, or in the form of
    verl's `compute_score` or of TRL's reward functions."""
    chat: bool = False
    """For a `function` in TRL's form: completions are chat messages, not texts."""
    convention: Literal["math_verify", "minerva"] = "math_verify"
    """For `math`: where the final answer is sought; `minerva`: between "Final Answer: The final
    answer is" and "I hope it is correct."."""
    uncontained: bool = False
    """For `code`: run responses' programs with nothing around them; they can do what you can."""
    timeout: float = Field(2.0, gt=0)
    """Seconds for one response; one that takes longer gets no reward (not `exact`)."""
    workers: int | None = Field(None, ge=1)
    """Processes that grade (not `exact`); by default as many as there are cores."""
    positive_threshold: float = Field(POSITIVE_THRESHOLD, allow_inf_nan=False)
    """A response is correct where its reward is above this."""

    @model_validator(mode="after")
    def _function_is_named(self) -> Self:
        if (self.type == "function") != bool(self.function):
            raise ValueError(
                "type 'function' needs function = 'module:function', and no other type takes one"
            )
        return self

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        for name, kind in (("chat", "function"), ("convention", "math"), ("uncontained", "code")):
            if self.type != kind and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for type '{kind}' alone, and type is '{self.type}'")
        return self


class GroupSettings(Section):
    """From all responses of a prompt to those that are trained on."""

    size: int = Field(4, ge=1)
    """Members of a group, k."""
    strategy: Strategy = "balanced"
    """`balanced`: half correct, half incorrect, where there are enough; `max_variance`: those whose
    rewards differ most; `positives`: correct ones alone; `all`: every response."""
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
    """`reference`: than the mean of all responses drawn; `grpo`: than the mean of the group;
    `linear`, `log`, `sqrt`, `arcsine`: the advantages that optimise that function of the pass
    rate; `reward`: the reward itself."""
    estimates: EstimateMethod = "plug_in"
    """For `linear`, `log`, `sqrt`, `arcsine`: the pass rate as the pool shows it, or estimates
    (`unbiased`) that allow for why its sampling stopped."""
    scale_by_std: bool = False
    """Divide by the standard deviation of the same rewards."""


class EngineSettings(Section):
    """How responses are drawn."""

    type: Literal["transformers", "vllm", "server"] = "transformers"
    """`transformers` (built in), `vllm`, or `server` (not to train); the latter two have sections
    of their own."""
    max_new_tokens: int = Field(1024, ge=1)
    """Responses are cut here."""
    temperature: float = Field(1.0, gt=0)
    """Of sampling."""
    batch_size: int = Field(256, ge=1)
    """Responses drawn at a time."""


class VLLMSettings(Section):
    """The vLLM engine (`engine.type = "vllm"`)."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of its weights; `auto` takes what vLLM takes for the model."""
    gpu_memory_utilization: float = Field(0.4, gt=0, le=1)
    """Share of the device's memory for its weights and cache; the learner needs the rest."""
    tensor_parallel_size: int = Field(1, ge=1)
    """Devices that its weights are split over."""
    enforce_eager: bool = False
    """Compile nothing: it starts sooner and draws slower."""
    draw_timeout: float = Field(600.0, gt=0)
    """Seconds for one response; one that takes longer is drawn again, a few times at most."""
    restarts: int = Field(3, ge=0)
    """How often in a run it is started again after its process died."""


class ServerSettings(Section):
    """A server that runs already (`engine.type = "server"`), of an OpenAI-compatible API."""

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str = ""
    """Its address up to `/v1`, such as `http://localhost:8000/v1`."""
    model: str = ""
    """The name that it serves the model by."""
    api_key_env: str = ""
    """The environment variable that holds the key; empty where the server wants none."""
    prompts: Literal["tokens", "text"] = "tokens"
    """How prompts are sent; as `text` to a server that takes no token ids."""
    extensions: bool = True
    """Send what vLLM, SGLang and llama.cpp know beyond OpenAI's API, to get token ids back and to
    sample without top-k, min-p and penalties; `false` for a server that refuses it."""
    processed_logprobs: bool = False
    """Its log-probabilities are at the temperature of sampling (vLLM: `--logprobs-mode
    processed_logprobs`); others are taken at temperature 1 alone."""
    draw_timeout: float = Field(600.0, gt=0)
    """Seconds for one response, retries and their waits included; one that takes longer is drawn
    again, a few times at most."""
    retries: int = Field(6, ge=0)
    """How often a request is sent again, after growing waits or what the server asks for, that
    ended by a lost connection, by too many requests or by an error of the server."""
    losses: int = Field(1000, ge=1)
    """After so many lost draws in a row the server is given up."""

    @model_validator(mode="after")
    def _address_is_plain(self) -> Self:
        parts = urlsplit(self.base_url)
        if self.base_url and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError("base_url must begin with http:// or https:// and name a host")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "base_url must hold no password, key or query; put the key into an environment "
                "variable, and its name into api_key_env"
            )
        return self


MICRO_BATCH_TOKENS = 16_384
"""The most tokens in one forward pass, by default, where not on a CPU."""


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
    micro_batch_tokens: int | None = Field(None, ge=1)
    """The most tokens in one forward pass, padding counted; less needs less memory. By default
    16,384, and on a CPU 1,024, which its caches hold."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """The probability ratio is clipped below 1 − this."""
    clip_high: float = Field(0.28, gt=0)
    """And above 1 + this."""
    dual_clip: float = Field(10.0, gt=1)
    """With a negative advantage, a token's loss is at most this many times its size."""
    importance_cap: float = Field(2.0, ge=0)
    """Each token's loss is weighted by how much likelier the learner finds it than the engine that
    drew it, at most this much; 0 makes no such correction."""
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

    trackers: list[str] = Field(default_factory=list)
    """Where metrics also go, such as `tensorboard` and `wandb` (through `accelerate`)."""
    prompts_per_step: int = Field(4, ge=0)
    """Prompts of each step whose responses are all kept in `samples.parquet`."""


class TrainConfig(CommandConfig):
    """All settings of `rollwise train`."""

    seed: int = Field(0, ge=0)
    """Of everything random in the run."""
    steps: int = Field(100, ge=1)
    """Training steps: draw, grade, learn."""
    backend: BackendSettings = BackendSettings()
    tinker: TinkerSettings = TinkerSettings()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    grading: GradingSettings = GradingSettings()
    prompts: one_of(PROMPT_SAMPLERS, PromptSettings) = Field(  # type: ignore[valid-type]
        default_factory=dict, validate_default=True
    )
    exit: one_of(EXIT_RULES, ExitSettings) = Field(default_factory=dict, validate_default=True)  # type: ignore[valid-type]
    schedule: one_of(SCHEDULES, ScheduleSettings) = Field(  # type: ignore[valid-type]
        default_factory=dict, validate_default=True
    )
    allocation: one_of(ALLOCATIONS, RuleSettings) = Field(  # type: ignore[valid-type]
        default_factory=dict, validate_default=True
    )
    group: GroupSettings = GroupSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    engine: EngineSettings = EngineSettings()
    vllm: VLLMSettings = VLLMSettings()
    server: ServerSettings = ServerSettings()
    learner: LearnerSettings = LearnerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    records: RecordSettings = RecordSettings()

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that hang on the model, the task and the exit rule."""
        return defaults_for(given)

    @model_validator(mode="after")
    def _exit_is_reachable(self) -> Self:
        try:
            check_reachable(self.exit.make(), self.schedule.make())
        except ValueError as error:
            raise ValueError(f"`exit` does not fit `schedule`: {error}") from None
        return self

    @model_validator(mode="after")
    def _draws_suffice(self) -> Self:
        total, prompts = self.schedule.total_draws, self.prompts.batch_size
        if total is not None and total < prompts:
            raise ValueError(
                f"`schedule.total_draws` must be at least one for each of the {prompts} prompts "
                f"of a step (`prompts.batch_size`); it is {total}"
            )
        if self.allocation.type == "gvm" and self.group.unresolved == "refill":
            raise ValueError(
                "`group.unresolved` must be `drop` or `keep` with `allocation.type` `gvm`: prompts "
                "that are drawn later have no pilot to share out draws by; it is `refill`"
            )
        most = self.schedule.make().max_samples
        if self.allocation.type != "none" and self.allocation.maximum > most:
            raise ValueError(
                f"`allocation.maximum` must be at most the {most} draws of a prompt that "
                f"`schedule` allows; it is {self.allocation.maximum}"
            )
        return self

    @model_validator(mode="after")
    def _advantages_fit(self) -> Self:
        try:
            check_objective(
                self.advantage.objective,
                scale_by_std=self.advantage.scale_by_std,
                estimates=self.advantage.estimates,
            )
        except ValueError as error:
            raise ValueError(f"`advantage`: {error}") from None
        return self

    @property
    def steps_ahead(self) -> int:
        """Steps that may be drawn before the updates of so many before them are made."""
        return self.tinker.max_steps_off_policy if self.backend.type == "tinker" else 0


def defaults_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that hang on other settings: on the model, the task and the exit rule."""
    defaults: dict[str, Any] = {}
    if setting(given, "model", "path", BUILT_IN) == BUILT_IN:
        # So small a model gains little by a second thread, and loses much by one that has to wait.
        defaults["model"] = {"cpu_threads": 1}
        defaults["learner"] = {"learning_rate": 2e-4}
        defaults["engine"] = {"max_new_tokens": 48, "batch_size": 512}
    if setting(given, "backend", "type", "local") == "tinker":
        defaults.setdefault("model", {})["lora_rank"] = 32
    source = BUILT_IN
    if setting(given, "data", "environment", ""):
        defaults["data"] = {"train": (source := ENVIRONMENT)}
    defaults["grading"] = grading_defaults(given, setting(given, "data", "train", source))
    for section, strategy in DEFAULT_STRATEGIES.items():
        defaults[section] = {"type": setting(given, section, "type", strategy)}
    allocation = defaults["allocation"]["type"]
    if allocation != "none":
        most = setting(given, "allocation", "maximum", Estimated.maximum)
        defaults["exit"] = {"type": "fixed_count", "samples": most}
        defaults["schedule"] = {"type": "rounds", "size": most, "rounds": 1}
        defaults["group"] = {"strategy": "all"}
        if allocation == "estimated":
            defaults["advantage"] = {"objective": "sqrt"}
    elif defaults["exit"]["type"] == "fixed_count":
        samples = setting(given, "exit", "samples", FixedCount.samples)
        defaults["schedule"] = {"type": "rounds", "size": samples, "rounds": 1}
        defaults["group"] = {"size": samples, "strategy": "all", "unresolved": "keep"}
        defaults["advantage"] = {"objective": "grpo", "scale_by_std": True}
    return defaults


def grading_defaults(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The defaults of `grading`, which hang on where the problems are from."""
    named = setting(given, "data", "environment", "")
    kind = "exact" if source == BUILT_IN else "environment" if named else "math"
    timeouts = {"code": 10.0, "environment": 60.0}
    timeout = timeouts.get(setting(given, "grading", "type", kind))
    return {"type": kind} | ({} if timeout is None else {"timeout": timeout})
