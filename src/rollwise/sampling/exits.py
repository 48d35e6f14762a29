"""Exit rules: when has a prompt been sampled enough.

A rule is a frozen dataclass with one question, `satisfied`, asked of the number of correct
(`positives`) and incorrect (`negatives`) responses in a prompt's pool. Integers in, a bool out;
arrays of any one shape in, a boolean array of that shape out.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rollwise.sampling.checks import at_least


@runtime_checkable
class ExitRule(Protocol):
    """Anything that can say whether a pool holds enough signal."""

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """Say whether sampling may stop (int, int -> bool; array, array -> bool array)."""
        ...


@dataclass(frozen=True)
class PositiveFocused:
    """Stop once the pool holds `positives` correct responses (Reinforce-Ada-pos, arXiv 2510.04996).

    Under this rule the pass rate of a pool leans upwards, and a prompt that is easy exits with no
    incorrect response at all: it saves draws on easy prompts, not their signal.
    """

    positives: int = field(default=1, metadata={"help": "Correct responses wanted."})

    def __post_init__(self) -> None:
        at_least("positives", self.positives, 1)

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """n₊ ≥ `positives`."""
        return positives >= self.positives


@dataclass(frozen=True)
class Balanced:
    """Stop once the pool holds enough of both kinds (Reinforce-Ada-balance, arXiv 2510.04996).

    With halves of the group size the trained group is always half correct, half incorrect. Under
    this rule the pass rate of a pool leans toward ½.
    """

    positives: int = field(default=2, metadata={"help": "Correct responses wanted."})
    negatives: int = field(default=2, metadata={"help": "Incorrect responses wanted."})

    def __post_init__(self) -> None:
        at_least("positives", self.positives, 1)
        at_least("negatives", self.negatives, 1)

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """n₊ ≥ `positives` and n₋ ≥ `negatives`."""
        return (positives >= self.positives) & (negatives >= self.negatives)


@dataclass(frozen=True)
class FixedCount:
    """Stop after `samples` responses, whatever they are: with one round of them, this is GRPO."""

    samples: int = field(default=4, metadata={"help": "Responses drawn."})

    def __post_init__(self) -> None:
        at_least("samples", self.samples, 1)

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """n₊ + n₋ ≥ `samples`."""
        return positives + negatives >= self.samples


@dataclass(frozen=True)
class GiveUp:
    """Give a prompt up once its rule is unlikely to be met within what remains of its budget.

    The chance is that of the Beta-binomial: the pass rate is believed to follow a Beta
    distribution, the prior that a prompt sampler may hold (else the flat one) and the responses
    drawn. The prompt then ends as `futile`, whatever its pool holds.

    Args:
        rule: When a prompt has been sampled enough.
        below: It is given up where the chance of that lies below this.
    """

    rule: ExitRule
    below: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.below <= 1:
            raise ValueError(f"below must lie between 0 and 1, got {self.below}")

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """Whether the rule is met."""
        return self.rule.satisfied(positives, negatives)
