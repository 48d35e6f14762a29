"""From the groups of a step to TRL's batch, which has a fixed number of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rollwise.step import TrainedGroup
from rollwise.step.outcomes import Outcome


@dataclass(frozen=True)
class Row:
    """A response in TRL's batch; one that does not count only fills it, and has no loss."""

    completion: Outcome
    advantage: float
    counts: bool


def make_rows(groups: Sequence[TrainedGroup], count: int, size: int) -> list[Row]:
    """Lay out `count` groups of `size` rows each, prompt by prompt.

    Groups with signal come first. Where there are too few, the other groups fill the batch with
    rows that do not enter the loss; so do the missing rows of a group that is too small.
    """
    drawn = sorted((g for g in groups if len(g.pool)), key=lambda group: group.dropped)
    if not drawn:
        raise RuntimeError(f"no response was drawn for any of the step's {len(groups)} prompts")
    blocks = [_block(group, size) for group in drawn[:count]]
    missing = count - len(blocks)
    fillers = [[replace(row, advantage=0.0, counts=False) for row in block] for block in blocks]
    blocks += [fillers[i % len(fillers)] for i in range(missing)]
    return [row for block in blocks for row in block]


def _block(group: TrainedGroup, size: int) -> list[Row]:
    rows = [
        Row(response, float(advantage), counts=not group.dropped)
        for response, advantage in zip(group.responses, group.advantages, strict=True)
    ]
    return rows + [Row(group.pool.responses[0], 0.0, counts=False)] * (size - len(rows))
