"""What rollouts cost, in seconds and tokens."""

from dataclasses import astuple, dataclass


@dataclass
class RolloutCost:
    """What rollouts cost; costs add up with `+`.

    Attributes:
        sampling: Seconds of generation, without those of grading.
        grading: Seconds spent waiting for rewards while nothing was generated.
        tokens: Tokens of all responses, including surplus and cancelled ones and failed attempts.
        failed_tokens: Those of failed attempts.
        cancelled: Episodes that were cancelled while they were played.
    """

    sampling: float = 0.0
    grading: float = 0.0
    tokens: int = 0
    failed_tokens: int = 0
    cancelled: int = 0

    def __add__(self, other: "RolloutCost") -> "RolloutCost":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return RolloutCost(*(own + others for own, others in pairs))
