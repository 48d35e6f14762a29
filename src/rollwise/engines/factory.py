"""The one place where an engine is made from settings."""

from typing import Any, Protocol

from rollwise.engines.engine import Engine
from rollwise.engines.settings import EngineInputs, EngineSettings


class EngineSection(Protocol):
    """The section `engine` of a command's settings."""

    @property
    def max_new_tokens(self) -> int:
        """Responses are cut here."""
        ...

    @property
    def temperature(self) -> float:
        """Of sampling."""
        ...

    @property
    def batch_size(self) -> int:
        """Responses drawn at a time."""
        ...

    def make(self) -> EngineSettings:
        """Return the settings of the engine that `type` names."""
        ...


def needs_model(section: EngineSection) -> bool:
    """Say whether the engine draws with the model in this process, see `EngineSettings`."""
    return bool(getattr(section.make(), "needs_model", False))


def can_train(section: EngineSection) -> bool:
    """Say whether the engine takes the learner's weights, see `EngineSettings`."""
    return bool(getattr(section.make(), "can_train", True))


def make_engine(
    section: EngineSection, path: str, model: Any, tokenizer: Any, max_prompt_tokens: int
) -> Engine:
    """Open the engine that the settings name.

    Args:
        section: The section `engine`.
        path: The model: a folder, or a name on the hub.
        model: See `EngineInputs`.
        tokenizer: The model's.
        max_prompt_tokens: The most tokens of a prompt.

    Raises:
        RollwiseError: The engine lacks something.
    """
    inputs = EngineInputs(
        path,
        model,
        tokenizer,
        max_prompt_tokens,
        section.max_new_tokens,
        section.temperature,
        section.batch_size,
    )
    return section.make().open(inputs)
