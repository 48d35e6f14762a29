"""What driver and workers exchange: an order for each prompt, and a report of its sampling.

Both travel as numbers, lists and text (`dataclasses.asdict`), which verl's queue keeps as they are,
also in a checkpoint.
"""

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from rollwise.integrations.verl.client import Attempt
from rollwise.records import Row
from rollwise.sampling import Group, Pool, RolloutSession
from rollwise.sampling.draws import ExitReason, Key
from rollwise.sampling.objectives import advantages_by
from rollwise.step import StepRecipe, TrainedGroup
from rollwise.step.episodes import ResponseFigures
from rollwise.step.groups import compare


@dataclass(frozen=True)
class Order:
    """What the trainer asks of a worker, for one prompt."""

    key: Key
    step: int  # in which it is asked; seeds depend on it, also where draws are drawn again
    prior: Sequence[float] | None = None  # α and β of the belief in its pass rate
    recorded: bool = False  # whether its responses are to be recorded as text


@dataclass(frozen=True)
class PromptReport:
    """One prompt's sampling: its pool of N responses, in draw order, and what it cost."""

    key: Key
    prior: Sequence[float] | None  # that of its order
    rewards: list[float]  # what the exit rule looked at, N of them
    scores: list[float]  # what advantages look at where the size of a reward counts, N of them
    indices: list[int]  # the draw that each response is of
    figures: list[list[Any]]  # the fields of each response's `ResponseFigures`, shape (N, 7)
    # The versions of the weights that drew the first and the last token of each response: the steps
    # after whose updates they were loaded; shape (N, 2).
    weights: list[list[int]]
    exit_reason: ExitReason
    members: list[int]  # the places in the pool of the responses that are trained on
    dropped: bool  # whether the group is left out because it carries no signal
    tokens: int  # of all attempts, those included that are in no pool
    failed_tokens: int  # those of failed attempts
    surplus: int  # draws that were not used
    failures: int  # failed attempts at draws
    lost: int  # draws that were given up after repeated failures
    records: list[Row]  # for `samples/`, if they were asked for

    @classmethod
    def of(
        cls,
        session: RolloutSession,
        group: TrainedGroup,
        attempts: Sequence[Attempt],
        records: list[Row],
    ) -> "PromptReport":
        """Summarise a session of one prompt, whose responses are `Graded`, and its group."""
        pool = group.pool
        return cls(
            key=pool.key,
            prior=pool.prior,
            rewards=pool.rewards.tolist(),
            scores=[response.reward for response in pool.responses],
            indices=[response.draw.index for response in pool.responses],
            figures=[list(astuple(ResponseFigures.of(response))) for response in pool.responses],
            weights=[list(response.weights) for response in pool.responses],
            exit_reason=pool.exit_reason or "exhausted",
            members=group.members.indices.tolist(),
            dropped=group.dropped,
            tokens=sum(attempt.tokens for attempt in attempts),
            failed_tokens=sum(attempt.tokens for attempt in attempts if attempt.failed),
            surplus=session.surplus,
            failures=session.failures,
            lost=session.lost,
            records=records,
        )

    def group(self, recipe: StepRecipe, pool: Pool) -> TrainedGroup:
        """Compare the members of the pool, by their scores where an objective looks at these."""
        members = np.array(self.members, dtype=np.int64)
        group = compare(recipe, pool, Group(members, pool.rewards[members]))
        objective = recipe.resolved_objective
        if not objective.looks_at_rewards or self.scores == self.rewards:
            return group
        scored = Pool(self.key, self.scores, positive_threshold=recipe.positive_threshold)
        values = advantages_by(objective, scored, Group(members, scored.rewards[members]))
        return replace(group, advantages=values)

    def advantages(self, group: TrainedGroup) -> dict[int, float]:
        """Map the draw of each member to its advantage; 0 if the group is left out."""
        values = (group.advantages * (not group.dropped)).tolist()
        return {self.indices[p]: value for p, value in zip(self.members, values, strict=True)}

    def samples(self, group: TrainedGroup) -> list[Row]:
        """Return its rows for `samples/`, with the advantages that are trained on."""
        values = self.advantages(group)
        return [row | {"advantage": values.get(row["index"])} for row in self.records]


def session_of(
    recipe: StepRecipe, reports: Collection[PromptReport], step: int = 0
) -> RolloutSession:
    """Rebuild the session of prompts: pools with figures as responses, beliefs, and counts."""
    priors: Any = [report.prior for report in reports] if recipe.uses_priors else None
    session = recipe.session([report.key for report in reports], step, priors=priors)
    for report in reports:
        pool = session.pools[report.key]
        for reward, figures in zip(report.rewards, report.figures, strict=True):
            pool.take(reward, ResponseFigures(*figures))
        pool.exit_reason = report.exit_reason
        session.surplus += report.surplus
        session.failures += report.failures
        session.lost += report.lost
    return session
