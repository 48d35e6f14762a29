"""From a step's groups to the rows of fixed number that TRL trains on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rollwise.engines import Completion
from rollwise.training.groups import TrainedGroup


@dataclass(frozen=True)
class Row:
    """A response in TRL's batch.

    Attributes:
        completion: The response.
        advantage: Its advantage.
        counts: Whether it enters the loss; a row that does not only fills the batch.
    """

    completion: Completion
    advantage: float
    counts: bool


def make_rows(groups: Sequence[TrainedGroup], count: int, size: int) -> list[Row]:
    """Lay out `count` groups of `size` rows each, prompt by prompt.

    Groups that carry signal come first. Where there are too few of them, the others fill the batch
    with rows that do not enter the loss, and so do rows missing from a group.

    Raises:
        RuntimeError: There is no response at all.
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
    responses = group.pool.responses
    rows = [
        Row(responses[place], float(advantage), counts=not group.dropped)
        for place, advantage in zip(group.members.indices, group.advantages, strict=True)
    ]
    return rows + [Row(responses[0], 0.0, counts=False)] * (size - len(rows))
