"""Beliefs: what is known of each prompt's pass rate before it is sampled again.

NumPy and the standard library only.
"""

from rollwise.beliefs.belief import Belief
from rollwise.beliefs.counts import DecayedBeta, LatestPassRate
from rollwise.beliefs.features import Features
from rollwise.beliefs.kalman import LogitKalman
from rollwise.beliefs.ratings import Ratings

BELIEFS: dict[str, type] = {
    "decayed_beta": DecayedBeta,
    "latest": LatestPassRate,
    "logit_kalman": LogitKalman,
    "ratings": Ratings,
}
"""The beliefs that settings choose by name; each is made as `Class(total, **settings)`."""

__all__ = [
    "BELIEFS",
    "Belief",
    "DecayedBeta",
    "Features",
    "LatestPassRate",
    "LogitKalman",
    "Ratings",
]
