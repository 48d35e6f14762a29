"""Beliefs: what is known of each prompt's pass rate before it is sampled again.

NumPy and the standard library only.
"""

from rollwise.beliefs.belief import Belief
from rollwise.beliefs.constant import Constant
from rollwise.beliefs.counts import DecayedBeta
from rollwise.beliefs.hidden_states import HiddenStates
from rollwise.beliefs.kalman import LogitKalman
from rollwise.beliefs.latest import LatestPassRate
from rollwise.beliefs.ratings import Ratings

BELIEFS: dict[str, type] = {
    "constant": Constant,
    "decayed_beta": DecayedBeta,
    "hidden_states": HiddenStates,
    "latest": LatestPassRate,
    "logit_kalman": LogitKalman,
    "ratings": Ratings,
}
"""What a belief may be named by. One is made as `Class(total, **settings)`."""

__all__ = [
    "BELIEFS",
    "Belief",
    "Constant",
    "DecayedBeta",
    "HiddenStates",
    "LatestPassRate",
    "LogitKalman",
    "Ratings",
]
