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
from rollwise.step import RolloutCost, StepRecipe, TrainedGroup
from rollwise.step.figures import ResponseFigures
from rollwise.step.groups import compare


@dataclass(frozen=True)
class Order:
    """What the trainer asks of a worker, for one prompt.

    Attributes:
        key: The prompt.
        step: In which it is asked; its draws' seeds depend on it, also where they are drawn again.
        prior: The belief in its pass rate, α and β of a Beta distribution; None if there is none.
        recorded: Whether its responses are to be recorded as text.
    """

    key: Key
    step: int
    prior: Sequence[float] | None = None
    recorded: bool = False


@dataclass(frozen=True)
class PromptReport:
    """One prompt's sampling: its pool of N responses, in draw order, and what it cost.

    Attributes:
        key: The prompt.
        prior: The belief that its order came with.
        rewards: What the exit rule looked at, N of them.
        scores: What advantages look at where the size of a reward counts, N of them.
        indices: The draw that each response is of.
        figures: The fields of each response's `ResponseFigures`, shape (N, 7).
        weights: The versions of the weights that drew the first and the last token of each
            response: the steps after whose updates they were loaded; shape (N, 2).
        exit_reason: Why sampling ended.
        members: The places in the pool of the responses that are trained on.
        dropped: Whether the group is left out because it carries no signal.
        tokens: Of all attempts, those included that are in no pool.
        failed_tokens: Those of failed attempts.
        surplus: Draws that were not used.
        failures: Failed attempts at draws.
        lost: Draws that were given up after repeated failures.
        records: Rows for `samples/`, if they were asked for.
    """

    key: Key
    prior: Sequence[float] | None
    rewards: list[float]
    scores: list[float]
    indices: list[int]
    figures: list[list[Any]]
    weights: list[list[int]]
    exit_reason: ExitReason
    members: list[int]
    dropped: bool
    tokens: int
    failed_tokens: int
    surplus: int
    failures: int
    lost: int
    records: list[Row]

    @classmethod
    def of(
        cls,
        session: RolloutSession,
        group: TrainedGroup,
        attempts: Sequence[Attempt],
        records: Sequence[Row],
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
            records=list(records),
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


def cost_of(reports: Collection[PromptReport]) -> RolloutCost:
    """Add up what prompts have cost; verl measures the time."""
    tokens = sum(report.tokens for report in reports)
    return RolloutCost(tokens=tokens, failed_tokens=sum(r.failed_tokens for r in reports))
