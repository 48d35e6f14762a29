"""What passes between driver and workers: what is asked of a prompt, and what came of it."""

import dataclasses
from dataclasses import dataclass
from typing import Any, get_args

from rollwise.records import Row
from rollwise.sampling import Pool, is_uniform
from rollwise.sampling.pool import ExitReason, Key
from rollwise.training.metrics import ResponseFigures


@dataclass(frozen=True)
class Order:
    """What the trainer asks of a worker, for one prompt.

    Attributes:
        key: The prompt.
        prior: What is believed of its pass rate: α and β of a Beta distribution; None, nothing.
        recorded: Whether its responses are wanted as text.
    """

    key: Key
    prior: tuple[float, float] | None = None
    recorded: bool = False


@dataclass(frozen=True)
class PromptReport:
    """One prompt's sampling, small enough to travel as metadata.

    Attributes:
        key: The prompt.
        rewards: What the exit rule looked at, of every response in the pool, in draw order.
        exit_reason: Why sampling ended.
        members: The places in the pool of those that are trained on.
        advantages: [draw index, advantage] of each member.
        dropped: Whether the group is left out, for it carries no signal.
        first: `ResponseFigures` of the first draws, as lists.
        tokens: Of all responses, surplus included.
        surplus: Draws beyond the exit.
        failures: Draws that failed, attempts counted one by one.
        lost: Draws that were given up.
        records: Rows for `samples.parquet`, where they were asked for.
    """

    key: Key
    rewards: list[float]
    exit_reason: ExitReason
    members: list[int]
    advantages: list[list[float]]
    dropped: bool
    first: list[list[float]]
    tokens: int
    surplus: int
    failures: int
    lost: int
    records: list[Row]

    def __post_init__(self) -> None:
        if self.exit_reason not in get_args(ExitReason):
            raise ValueError(f"prompt {self.key!r}: unknown exit reason {self.exit_reason!r}")

    def as_tag(self) -> Row:
        """Turn into what TransferQueue takes as metadata: lists, numbers and text."""
        return dataclasses.asdict(self)

    def pool(self, positive_threshold: float) -> Pool:
        """Rebuild the pool, without its responses."""
        pool = Pool(self.key, self.rewards, positive_threshold=positive_threshold)
        pool.exit_reason = self.exit_reason
        return pool

    @property
    def uniform_group(self) -> bool:
        """Whether all members have the same reward."""
        return is_uniform([self.rewards[place] for place in self.members])

    @property
    def first_draws(self) -> list[ResponseFigures]:
        """The figures of the first draws."""
        return [ResponseFigures(int(t), float(s), bool(cut)) for t, s, cut in self.first]

    def advantage_rows(self, uid: str) -> dict[str, float]:
        """Map verl's name of each member's rollout, `UID_INDEX`, to its advantage."""
        kept = 0.0 if self.dropped else 1.0
        return {f"{uid}_{int(index)}": value * kept for index, value in self.advantages}


def report_of(tag: dict[str, Any]) -> PromptReport:
    """Read back a report."""
    return PromptReport(**tag)
