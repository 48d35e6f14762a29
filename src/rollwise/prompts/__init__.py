"""Which prompts: who comes next, given what came of those before.

NumPy and the standard library only.
"""

from rollwise.prompts.base import BatchSampler
from rollwise.prompts.cdas import CDAS
from rollwise.prompts.curriculum import Curriculum
from rollwise.prompts.posterior import Posterior
from rollwise.prompts.prioritized import Prioritized
from rollwise.prompts.retiring import Retiring
from rollwise.prompts.sampler import Forecaster, PromptSampler, State
from rollwise.prompts.uniform import Uniform

__all__ = [
    "CDAS",
    "BatchSampler",
    "Curriculum",
    "Forecaster",
    "Posterior",
    "Prioritized",
    "PromptSampler",
    "Retiring",
    "State",
    "Uniform",
]
