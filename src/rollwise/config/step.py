"""From the settings of a run to what its steps need: their recipe, and the prompt sampler."""

from collections.abc import Mapping, Sequence
from typing import Any

from rollwise.config.group import step_recipe as step_recipe
from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError
from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key


def make_sampler(
    config: TrainConfig, keys: Sequence[Key], columns: Mapping[str, Sequence[Any]]
) -> PromptSampler:
    """Make the prompt sampler that the settings describe, with its belief.

    Args:
        config: The settings.
        keys: The prompts, each once.
        columns: Name -> a value for each prompt, shape (P,): what a belief may take as features. A
            curriculum looks at `level`.

    Raises:
        ConfigError: The settings do not fit these prompts.
    """
    section = "belief"
    try:
        own = getattr(config.prompts.kind, "belief_kind", None)
        belief = config.belief.make(len(keys), columns, own)
        section = "prompts"
        levels = columns.get("level", [None] * len(keys))
        sampler: PromptSampler = config.prompts.make(keys, config.seed, levels, belief)
    except ValueError as error:
        raise ConfigError(f"`{section}`: {error}") from None
    return sampler
