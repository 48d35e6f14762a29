"""Prompt samplers: which prompts come next, given the results of earlier ones.

NumPy and the standard library only.
"""

from rollwise.prompts.by_belief import Posterior, Prioritized, Worth
from rollwise.prompts.cdas import CDAS
from rollwise.prompts.epochs import Curriculum, Uniform
from rollwise.prompts.fixed_set import FixedSetSampler
from rollwise.prompts.sampler import PromptSampler

PROMPT_SAMPLERS: dict[str, type] = {
    "uniform": Uniform,
    "curriculum": Curriculum,
    "prioritized": Prioritized,
    "cdas": CDAS,
    "posterior": Posterior,
    "worth": Worth,
}
"""Samplers for `prompts.type`; each is made as `Class(keys, batch_size, seed, **settings)`."""

__all__ = [
    "CDAS",
    "PROMPT_SAMPLERS",
    "Curriculum",
    "FixedSetSampler",
    "Posterior",
    "Prioritized",
    "PromptSampler",
    "Uniform",
    "Worth",
]
