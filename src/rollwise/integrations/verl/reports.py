"""What driver and workers exchange: an order for each prompt, and a report of its sampling."""

import dataclasses
from dataclasses import dataclass
from typing import Any, get_args

from rollwise.records import Row
from rollwise.sampling import Pool, has_zero_variance
from rollwise.sampling.draws import ExitReason, Key
from rollwise.step.metrics import ResponseFigures


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
    prior: tuple[float, float] | None = None
    recorded: bool = False

    def as_field(self) -> Row:
        """Convert to what verl's queue keeps as it is, also in a checkpoint: numbers and text."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class PromptReport:
    """One prompt's sampling, small enough to travel as metadata.

    Attributes:
        key: The prompt.
        rewards: What the exit rule looked at, of every response in the pool, in draw order.
        exit_reason: Why sampling ended.
        members: The places in the pool of the responses that are trained on.
        advantages: [draw index, advantage] of each member.
        dropped: Whether the group is left out because it carries no signal.
        first: `ResponseFigures` of the first draws, as lists.
        weights: For each response in the pool, the versions of the weights that drew its first and
            its last token: the steps after whose updates they were loaded.
        ends: How many responses in the pool ended in which way.
        tokens: Of all draws, those included that are in no pool.
        failed_tokens: Those of failed attempts.
        surplus: Draws beyond the exit.
        stale: Draws cancelled because the prompt's oldest response was too old to wait for them.
        failures: Failed attempts at draws.
        lost: Draws that were given up after repeated failures.
        ledger: Where its draws and tokens went (`group_ledger`).
        records: Rows for `samples/`, if they were asked for.
    """

    key: Key
    rewards: list[float]
    exit_reason: ExitReason
    members: list[int]
    advantages: list[list[float]]
    dropped: bool
    first: list[list[float]]
    weights: list[list[int]]
    ends: dict[str, int]
    tokens: int
    failed_tokens: int
    surplus: int
    stale: int
    failures: int
    lost: int
    ledger: dict[str, dict[str, int]]
    records: list[Row]

    def __post_init__(self) -> None:
        if self.exit_reason not in get_args(ExitReason):
            raise ValueError(f"prompt {self.key!r}: unknown exit reason {self.exit_reason!r}")

    def as_tag(self) -> Row:
        """Convert to what TransferQueue takes as metadata: lists, numbers and text."""
        return dataclasses.asdict(self)

    def pool(self, positive_threshold: float) -> Pool:
        """Rebuild the pool, without its responses."""
        pool = Pool(self.key, self.rewards, positive_threshold=positive_threshold)
        pool.exit_reason = self.exit_reason
        return pool

    @property
    def zero_variance_group(self) -> bool:
        """Whether all members have the same reward."""
        return has_zero_variance([self.rewards[place] for place in self.members])

    @property
    def first_draws(self) -> list[ResponseFigures]:
        """The figures of the first draws."""
        return [ResponseFigures(int(t), float(s), bool(cut), int(n)) for t, s, cut, n in self.first]

    @property
    def trained(self) -> int:
        """Draws that are trained on; none where all advantages are 0."""
        teaches = not self.dropped and any(value for _, value in self.advantages)
        return len(self.members) if teaches else 0

    def ages(self, step: int) -> list[int]:
        """Say of each response how many updates its first token's weights lack in `step`."""
        return [step - 1 - first for first, _ in self.weights]

    def advantage_rows(self, uid: str) -> dict[str, float]:
        """Map verl's name of each member's rollout, `UID_INDEX`, to its advantage."""
        kept = 0.0 if self.dropped else 1.0
        return {f"{uid}_{int(index)}": value * kept for index, value in self.advantages}


def order_of(field: Row) -> Order:
    """Read an order from its field."""
    prior = field["prior"]
    return Order(**field | {"prior": None if prior is None else tuple(prior)})


def report_of(tag: dict[str, Any]) -> PromptReport:
    """Read a report from its tag."""
    return PromptReport(**tag)
