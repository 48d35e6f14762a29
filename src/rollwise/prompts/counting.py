"""The base of samplers that by default believe what decayed counts of responses say."""

from dataclasses import dataclass, field

from rollwise.beliefs import Belief, DecayedBeta
from rollwise.beliefs.counts import DECAY_HELP
from rollwise.prompts.fixed_set import FixedSetSampler


@dataclass(eq=False)
class CountingSampler(FixedSetSampler):
    """A sampler that, given no other belief, believes a `DecayedBeta` of its own `decay`."""

    decay: float = field(default=0.5, kw_only=True, metadata={"help": DECAY_HELP})

    def _make_belief(self) -> Belief:
        return DecayedBeta(len(self.keys), decay=self.decay)
