"""Episodes by a model: its engine draws the turns, and its chat template joins them."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from rollwise.engines import Engine, EpisodeEngine, EpisodeLimits
from rollwise.engines.ends import end_tokens
from rollwise.environments import EnvironmentSource, EpisodeEnvironment
from rollwise.models.encoding import encode_conversation, turn_encoder
from rollwise.sampling.draws import Key


class EpisodeSection(Protocol):
    """The section `episode` of a command's settings."""

    @property
    def plays(self) -> bool:
        """Whether draws are played as episodes."""
        ...

    @property
    def max_turns(self) -> int:
        """The most turns of the model."""
        ...

    @property
    def max_tokens(self) -> int:
        """No turn begins at so many tokens."""
        ...

    @property
    def max_seconds(self) -> float | None:
        """Seconds after which a draw is cut."""
        ...

    def make(self) -> Any:
        """Return the environment that `type` names."""
        ...


def play_episodes(
    section: EpisodeSection,
    source: EnvironmentSource,
    engine: Engine,
    problems: Mapping[Key, Any],
    tokenizer: Any,
    context: float | None,
    turn_tokens: int,
) -> EpisodeEngine:
    """Let draws be episodes, whose turns an engine draws.

    Args:
        section: The environment, and where episodes are cut.
        source: The environment of `data.environment`.
        engine: Draws the turns.
        problems: Each prompt's `messages` and `answer`, by key.
        tokenizer: The model's.
        context: The most tokens of prompt and episode; None if unknown.
        turn_tokens: The most tokens of a turn.

    Raises:
        ConfigError: The environment cannot be opened.
        ModelError: Turns cannot be appended by the model's chat template.
    """
    environment: EpisodeEnvironment = section.make().opened(source)
    encode = turn_encoder(tokenizer, end_tokens(None, tokenizer), environment.roles)
    limits = EpisodeLimits(
        turns=section.max_turns,
        tokens=section.max_tokens,
        seconds=section.max_seconds,
        context=context or math.inf,
        turn_tokens=turn_tokens,
    )
    return EpisodeEngine(
        engine,
        environment,
        problems,
        encode,
        limits,
        encode_prompt=lambda messages: encode_conversation(tokenizer, messages),
    )
