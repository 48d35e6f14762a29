"""From settings to what a command works with: model, engine, grader and, to train, a learner.

Light to import: what a backend needs is imported when it is opened.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from rollwise.errors import ConfigError
from rollwise.sampling.checks import Checked
from rollwise.step import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rollwise.config import EvaluateConfig, PrepareConfig, TrainConfig
    from rollwise.engines import Engine
    from rollwise.grading import Grader
    from rollwise.models.encoding import EncodedPrompts
    from rollwise.sampling.draws import Key
    from rollwise.tasks import Problem

C = TypeVar("C", bound="TrainConfig | EvaluateConfig | PrepareConfig")
"""The settings that something is built from."""


class StepLearner(Protocol):
    """Updates a model, one step at a time.

    Attributes:
        updates: Updates made so far.
    """

    updates: int

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, and return their metrics."""

    def weights(self) -> Mapping[str, Any]:
        """Return what the backend's own engine accepts in `load_weights`."""

    def save(self, folder: Path) -> None:
        """Write what `load` needs into a checkpoint's folder."""

    def load(self, folder: Path) -> None:
        """Resume from a checkpoint's folder; the caller sets `updates`."""


class Backend(Protocol):
    """The place where a model is kept: this process, or a service.

    Attributes:
        tokenizer: The model's.
        generation: Its generation configuration, which may name end tokens; None if it has none.
        context: The most tokens, prompt and response, that it takes; None if unknown.
        learner: Updates it; None if it is not trained.
    """

    tokenizer: "PreTrainedTokenizerBase"
    generation: Any
    context: int | None
    learner: Any

    def make_engine(self) -> "Engine":
        """Make an engine that draws from the model as it is now."""


class BackendSettings(Checked):
    """Base class of the backends that `backend.type` can name.

    A subclass is a frozen dataclass, whose fields are the backend's settings. Write `open`.

    Attributes:
        defaults: Section -> setting -> its default where this backend is chosen, for settings of
            other sections. It applies to the backends that come with rollwise, not to plug-ins.
    """

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> Backend:
        """Make the backend of a run.

        Args:
            config: All settings of the run; `config.backend` has these.
            checkpoint: The folder of the checkpoint to resume from, if any.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LocalSettings(BackendSettings):
    """In this process, with the engine beside it."""

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> Backend:
        """Load the model, that of the checkpoint if there is one, and make its learner."""
        import torch
        from transformers import AutoConfig

        from rollwise.models.loading import (
            adapter_weights,
            computes_in_bfloat16,
            from_pretrained,
            load_model,
            merged_weights,
            model_path,
            pick_device,
        )
        from rollwise.training.learner import Learner

        config.check_engine()
        torch.manual_seed(config.seed)  # new adapters draw their weights from it
        learner, device = config.learner, pick_device(config.model.device)
        if device.type == "cuda":
            from rollwise.training.memory import fitted_learner

            described = from_pretrained(AutoConfig, model_path(config.model.path))
            total = torch.cuda.get_device_properties(device).total_memory
            learner = fitted_learner(config, described, total, computes_in_bfloat16(device))
        model, tokenizer = load_model(config.model, checkpoint / "model" if checkpoint else None)
        engine: Any = config.engine.make()
        apart = engine.takes_adapters and config.model.lora_rank > 0
        exported = adapter_weights if apart else merged_weights
        weights_of = torch.nn.Module.state_dict if engine.needs_model else exported
        updates = Learner(model, learner, config.engine.temperature, weights_of)
        return LocalBackend(config, model, tokenizer, updates)


class LocalBackend:
    """A model in this process; only its description if an engine loads it and it is not trained.

    Its attributes are those of a `Backend`.
    """

    def __init__(self, config: Any, model: Any, tokenizer: Any, learner: Any = None) -> None:
        from rollwise.engines.settings import context_of

        self._config, self._model, self.tokenizer, self.learner = config, model, tokenizer, learner
        self.generation, self.context = model.generation_config, context_of(model.config)

    @classmethod
    def untrained(cls, config: Any) -> Self:
        """Load what the engine of a command that does not train needs of a model."""
        from rollwise.models.loading import computes_in_bfloat16, in_bfloat16
        from rollwise.models.saved import describe_saved, load_saved

        if not config.engine.kind.needs_model:
            return cls(config, *describe_saved(config.model))
        model, tokenizer = load_saved(config.model)
        if computes_in_bfloat16(model.device):
            in_bfloat16(model)
        return cls(config, model, tokenizer)

    def make_engine(self) -> "Engine":
        """Make the engine that the settings name.

        Raises:
            RollwiseError: The engine lacks something, or what is opened is no `Engine`.
        """
        from rollwise.engines import Engine
        from rollwise.engines.settings import EngineInputs
        from rollwise.models.loading import for_sampling, model_path

        config, own = self._config, self._config.engine
        draws_itself = own.kind.needs_model
        inputs = EngineInputs(
            path=model_path(config.model.path),
            model=for_sampling(self._model) if self.learner and draws_itself else self._model,
            tokenizer=self.tokenizer,
            max_prompt_tokens=longest_prompt(config),
            max_new_tokens=own.max_new_tokens,
            temperature=own.temperature,
            batch_size=own.batch_size,
        )
        engine: object = own.make().open(inputs)
        if not isinstance(engine, Engine):
            raise ConfigError(
                f"`engine.type`: {type(engine).__name__} must inherit from "
                "`rollwise.engines.Engine`"
            )
        if self.learner and not draws_itself:  # a resumed run has other weights than `model.path`
            engine.load_weights(self.learner.weights())
        return engine


def longest_prompt(config: Any) -> int:
    """Return the most tokens from which a response, or a turn of an episode, is drawn."""
    further: int = config.episode.max_tokens if config.episode.plays else 0
    return int(config.data.max_prompt_tokens) + further


class Built(Generic[C]):
    """What a command works with; `build` makes it.

    Each part is made when it is first used. Use it as a context manager, which closes the engine
    and the grader.
    """

    def __init__(self, config: C, checkpoint: Path | None = None) -> None:
        self.config, self._checkpoint = config, checkpoint
        self._problems: dict[Key, Problem] = {}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.close()

    @functools.cached_property
    def backend(self) -> Backend:
        """Where the model is kept; it has a learner if the command trains."""
        config: Any = self.config
        if not hasattr(config, "backend"):
            return LocalBackend.untrained(config)
        backend: Backend = config.backend.make().open(config, self._checkpoint)
        return backend

    @functools.cached_property
    def grader(self) -> "Grader":
        """The grader that the settings name."""
        from rollwise.grading.settings import make_grader

        grading, data, folder = self.config.grading, self.config.data, self.config.plugin_folder
        return self._held.enter_context(make_grader(grading, data, folder))

    @functools.cached_property
    def engine(self) -> "Engine":
        """The engine that the settings name; it plays episodes if they say so."""
        engine = self.backend.make_engine()
        if self.config.episode.plays:
            engine = self._playing(engine)
        return self._held.enter_context(engine)

    def encode(self, problems: "Iterable[Problem]") -> "EncodedPrompts":
        """Encode problems; leave out those whose prompt is too long for a response to fit.

        The engine can play episodes of those that are kept. Raises what `encode_prompts` does.
        """
        from rollwise.models.encoding import encode_prompts

        lengths = self.config.data.max_prompt_tokens, self.config.engine.max_new_tokens
        fitting = encode_prompts(problems, self.backend.tokenizer, *lengths, self.backend.context)
        self._problems |= {problem.key: problem for problem in fitting.problems}
        return fitting

    def _playing(self, engine: "Engine") -> "Engine":
        """Play draws as episodes, whose turns an engine draws and the chat template joins."""
        from rollwise.engines import EpisodeEngine, EpisodeLimits
        from rollwise.engines.ends import end_tokens
        from rollwise.models.encoding import encode_conversation, turn_encoder

        config, tokenizer = self.config, self.backend.tokenizer
        environment = config.episode.make()
        longest = longest_prompt(config) + config.engine.max_new_tokens  # as the engine is opened
        limits = EpisodeLimits(
            turns=config.episode.max_turns,
            tokens=config.episode.max_tokens,
            context=min(self.backend.context or longest, longest),
            turn_tokens=config.engine.max_new_tokens,
        )
        ends = end_tokens(self.backend.generation, tokenizer)
        encode_turn = turn_encoder(tokenizer, ends, environment.roles)
        encode = functools.partial(encode_conversation, tokenizer)
        return EpisodeEngine(engine, environment, self._problems, encode_turn, encode, limits)


def build(config: C, checkpoint: Path | None = None) -> Built[C]:
    """Build what the settings of `train`, `evaluate` or `prepare` describe.

    Args:
        config: The settings.
        checkpoint: The folder of the checkpoint from which a run resumes, if any.
    """
    return Built(config, checkpoint)
