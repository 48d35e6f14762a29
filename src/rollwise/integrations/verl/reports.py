"""What driver and workers exchange: an order for each prompt, and a report of its sampling.

Both travel as numbers, lists and text (`dataclasses.asdict`), which verl's queue keeps as they are,
also in a checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rollwise.records import Row
from rollwise.sampling import Group, Pool
from rollwise.sampling.draws import ExitReason, Key
from rollwise.sampling.objectives import advantages_by
from rollwise.step import StepRecipe, TrainedGroup
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
    """One prompt's sampling.

    Attributes:
        key: The prompt.
        prior: The belief that its order came with.
        rewards: What the exit rule looked at, of each of the N responses in the pool, in draw
            order.
        scores: What advantages look at where the size of a reward counts, shape (N,).
        indices: The draw that each response is of, shape (N,).
        figures: The fields of each response's `ResponseFigures`, shape (N, 6).
        weights: The versions of the weights that drew the first and the last token of each
            response: the steps after whose updates they were loaded; shape (N, 2).
        exit_reason: Why sampling ended.
        members: The places in the pool of the responses that are trained on.
        dropped: Whether the group is left out because it carries no signal.
        ends: How many responses in the pool ended in which way.
        tokens: Of all draws, those included that are in no pool.
        failed_tokens: Those of failed attempts.
        surplus: Draws beyond the exit.
        stale: Draws cancelled because the prompt's oldest response was too old to wait for them.
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
    ends: dict[str, int]
    tokens: int
    failed_tokens: int
    surplus: int
    stale: int
    failures: int
    lost: int
    records: list[Row]

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
        return {
            self.indices[place]: value for place, value in zip(self.members, values, strict=True)
        }

    def samples(self, group: TrainedGroup) -> list[Row]:
        """Return its rows for `samples/`, with the advantages that are trained on."""
        values = self.advantages(group)
        return [row | {"advantage": values.get(row["index"])} for row in self.records]

    def ages(self, step: int) -> list[int]:
        """Say of each response how many updates its first token's weights lack in `step`."""
        return [step - 1 - first for first, _ in self.weights]


def pools_of(recipe: StepRecipe, reports: Sequence[PromptReport]) -> list[Pool]:
    """Rebuild the pools of prompts, with what was believed of them and figures as responses."""
    if not reports:
        return []
    priors: Any = [report.prior for report in reports] if recipe.uses_priors else None
    pools = recipe.session([report.key for report in reports], 0, priors=priors).pools
    for report in reports:
        pool = pools[report.key]
        for reward, figures in zip(report.rewards, report.figures, strict=True):
            pool.take(reward, ResponseFigures(*figures))
        pool.exit_reason = report.exit_reason
    return list(pools.values())
