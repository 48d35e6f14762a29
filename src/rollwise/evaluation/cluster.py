"""What a step takes on several nodes: seconds, and bytes that cross the network.

The bytes are those of verl with the plug-in, counted in docs/verl.md for responses of 2,000 tokens;
the driver's seconds were measured there.
"""

from dataclasses import dataclass

import numpy as np

from rollwise.evaluation.planning import Plan

BYTES_A_PROMPT = 2_100.0
"""The prompt and its sampling requests, and the reports about it."""

BYTES_A_TOKEN_DRAWN = 64.0
"""From the engine to its worker (14), and on to the one that grades (50)."""

BYTES_A_TOKEN_TRAINED = 125.0
"""To the storage and from there to the learner."""

DRIVER_PROMPTS, DRIVER_SECONDS = (0, 512, 10_000), (0.0, 0.134, 6.21)
"""What the driver takes for a step of so many prompts, measured on two cores."""


@dataclass(frozen=True)
class OnNodes:
    """A step on so many nodes.

    Attributes:
        nodes: How many.
        seconds: Of sampling.
        driver_seconds: Of the driver, which does not scale with the nodes.
        gigabytes: That cross the network, a node.
    """

    nodes: int
    seconds: float
    driver_seconds: float
    gigabytes: float

    @classmethod
    def of(cls, nodes: int, plan: Plan) -> "OnNodes":
        """Take the figures of a plan that was made with the slots of all nodes."""
        tokens, draws = plan["tokens"].value, plan["draws"].value
        trained = plan["trained"].value * tokens / draws if draws else 0.0
        prompts = plan["prompts"].value
        sent = (
            BYTES_A_PROMPT * prompts
            + BYTES_A_TOKEN_DRAWN * tokens
            + BYTES_A_TOKEN_TRAINED * trained
        )
        return cls(nodes, plan["seconds"].value, driver_seconds(prompts), sent / nodes / 1e9)


def driver_seconds(prompts: float) -> float:
    """Interpolate between the measured steps; beyond the largest, in proportion to the prompts."""
    measured = float(np.interp(prompts, DRIVER_PROMPTS, DRIVER_SECONDS))
    return measured * max(1.0, prompts / DRIVER_PROMPTS[-1])
