"""A grader of one's own: part of the reward for an answer that is nearly right."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartialCredit:
    """1 for the right number; `credit` for one that is off by at most `distance`; else 0."""

    distance: int = field(default=1, metadata={"help": "How far off an answer may be."})
    credit: float = field(default=0.5, metadata={"help": "The reward of such an answer."})

    def grade(self, response: str, answer: str) -> float:
        """Grade one response; this runs in a worker process, where it may hang or raise."""
        said = response.rpartition("=")[2].strip()
        if said == answer:
            return 1.0
        try:
            return self.credit * (abs(int(said) - int(answer)) <= self.distance)
        except ValueError:  # no number
            return 0.0
