"""Prompt samplers: which prompts come next, given the results of earlier ones.

NumPy and the standard library only.
"""

from rollwise.beliefs.state import State
from rollwise.prompts.cdas import CDAS
from rollwise.prompts.epochs import Curriculum, Uniform
from rollwise.prompts.fixed_set import FixedSetSampler
from rollwise.prompts.posterior import Posterior
from rollwise.prompts.prioritized import Prioritized
from rollwise.prompts.sampler import PromptSampler
from rollwise.prompts.worth import Worth

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
    "State",
    "Uniform",
    "Worth",
]
