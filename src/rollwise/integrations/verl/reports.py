"""What driver and workers exchange: an order for each prompt, and a report of its sampling.

Both travel as numbers, lists and text (`dataclasses.asdict`), which verl's queue keeps as they are,
also in a checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwise.records import Row
from rollwise.sampling import Group, Pool, RolloutSession, Score
from rollwise.sampling.draws import ExitReason, Key
from rollwise.step import TrainedGroup
from rollwise.step.response import Figures


@dataclass(frozen=True)
class Order:
    """What the trainer asks of a worker, for one prompt."""

    key: Key
    step: int  # in which it is asked; seeds depend on it, even if draws are drawn again
    prior: Sequence[float] | None = None  # α and β of the belief in its pass rate
    recorded: bool = False  # whether its responses are to be recorded as text


@dataclass(frozen=True)
class PromptReport:
    """One prompt's sampling: its pool of N responses, in draw order, and its group of k members."""

    key: Key
    rewards: list[Any]  # N numbers, or what `Score.of` reads
    indices: list[int]  # the draw index of each response
    figures: list[list[Any]]  # each response's `Figures`, shape (N, 7)
    # The version of the weights that drew each response's first token: the step after whose update
    # they were loaded.
    weights: list[int]
    exit_reason: ExitReason
    members: list[int]  # the places in the pool of the responses that are trained on
    advantages: list[float]  # of the members, before the step's other prompts are considered
    dropped: bool  # whether the group is left out because it carries no signal
    tokens: int  # of all responses, also those that are in no pool
    surplus: int  # draws that were not used
    failures: int  # failed attempts at draws
    lost: int  # draws that were given up after repeated failures
    records: list[Row]  # for `samples/`, if they were asked for

    @classmethod
    def of(
        cls, session: RolloutSession, group: TrainedGroup, tokens: int, records: list[Row]
    ) -> "PromptReport":
        """Summarize a session of one prompt, whose responses are `Graded`, and its group."""
        pool = group.pool
        return cls(
            key=pool.key,
            rewards=[Score.of(reward).told for reward in pool.scores],
            indices=[response.draw.index for response in pool.responses],
            figures=[list(response.figures) for response in pool.responses],
            weights=[response.weights[0] for response in pool.responses],
            exit_reason=pool.exit_reason or "exhausted",
            members=group.members.indices.tolist(),
            advantages=group.advantages.tolist(),
            dropped=group.dropped,
            tokens=tokens,
            surplus=session.surplus,
            failures=session.failures,
            lost=session.lost,
            records=records,
        )

    def group(self, positive_threshold: float) -> TrainedGroup:
        """Rebuild the group, with figures as responses."""
        figures = [Figures(*fields) for fields in self.figures]
        pool = Pool(self.key, positive_threshold=positive_threshold)
        for reward, of_response in zip(self.rewards, figures, strict=True):
            pool.take(Score.of(reward), of_response)
        pool.exit_reason = self.exit_reason
        members = np.array(self.members, dtype=np.int64)
        group = Group(members, pool.rewards[members])
        return TrainedGroup(pool, group, np.array(self.advantages), self.dropped)

    def by_draw(self, group: TrainedGroup) -> dict[int, float]:
        """Map the draw of each member to its advantage in `group`; 0 if that is left out."""
        values = (group.advantages * (not group.dropped)).tolist()
        return {self.indices[p]: value for p, value in zip(self.members, values, strict=True)}
