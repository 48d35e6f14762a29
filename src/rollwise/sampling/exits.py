"""Exit rules: when a prompt has been sampled enough, by the counts in its pool."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import Checked, Count


class ExitRule(Checked, ABC):
    """Base class of exit rules; a rule of your own defines `satisfied` and is a frozen dataclass.

    Example:
        >>> @dataclass(frozen=True)
        ... class AnyIncorrect(ExitRule):
        ...     def satisfied(self, positives, negatives):
        ...         return negatives >= 1

    Attributes:
        count: The responses of every prompt, where the rule fixes them; None where it does not.
    """

    count: int | None = None

    @abstractmethod
    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """Return whether a pool with these counts is enough: a bool, or a boolean array for arrays.

        A rule may take integers alone; with arrays, budgets of hundreds of draws are faster.

        Args:
            positives: n₊, correct responses; an integer, or an array of integers.
            negatives: n₋, incorrect responses; of the same shape.
        """


@dataclass(frozen=True)
class PositiveFocused(ExitRule):
    """Stop once the pool holds `positives` correct responses (Reinforce-Ada-pos, arXiv 2510.04996).

    Under this rule the pass rate of a pool leans upwards, and a prompt that is easy exits with no
    incorrect response at all: it saves draws on easy prompts, not their signal.
    """

    positives: Count = 1
    """Correct responses to draw."""

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        return positives >= self.positives


@dataclass(frozen=True)
class Balanced(ExitRule):
    """Stop once the pool holds enough of both kinds (Reinforce-Ada-balance, arXiv 2510.04996).

    With each at half the group size, the trained group is always half correct, half incorrect.
    Under this rule the pass rate of a pool leans toward ½.
    """

    positives: Count = 2
    """Correct responses to draw."""
    negatives: Count = 2
    """Incorrect responses to draw."""

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        return (positives >= self.positives) & (negatives >= self.negatives)


@dataclass(frozen=True)
class FixedCount(ExitRule):
    """Stop after `samples` responses, whatever they are: with one round of them, this is GRPO."""

    samples: Count = 4
    """Responses per prompt."""

    @property
    def count(self) -> int:  # type: ignore[override]  # this one fixes them
        return self.samples

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        return positives + negatives >= self.samples


EXIT_RULES: dict[str, type[ExitRule]] = {
    "balanced": Balanced,
    "positive_focused": PositiveFocused,
    "fixed_count": FixedCount,
}
"""The exit rules that settings choose by name."""


def check_is_rule(rule: Any) -> None:
    """Refuse (a `TypeError`) what does not inherit from `ExitRule`."""
    if not isinstance(rule, ExitRule):
        due = "inherits from rollwise.ExitRule and defines `satisfied`"
        raise TypeError(f"an exit rule {due}, got {rule!r}")


def where_satisfied(
    rule: ExitRule, positives: NDArray[np.int64], negatives: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether a rule is satisfied at each pair of counts, arrays of one shape.

    A `PluginError` names a rule that did not return booleans.
    """
    check_is_rule(rule)
    answer: Any
    try:
        answer = rule.satisfied(positives, negatives)
    except (TypeError, ValueError):  # `and`, `min` and `math.sqrt` do not take arrays
        pairs = zip(positives.flat, negatives.flat, strict=True)
        answers = [rule.satisfied(int(n), int(m)) for n, m in pairs]
        answer = np.reshape(np.array(answers), positives.shape)
    met = np.asarray(answer) if isinstance(answer, (bool, np.bool_, np.ndarray)) else None
    if met is None or met.dtype != bool or met.shape not in ((), positives.shape):
        wanted = f"True or False, or an array of them of shape {positives.shape} for arrays"
        raise wrong_result(rule, "satisfied", wanted, answer)
    return np.broadcast_to(met, positives.shape)
