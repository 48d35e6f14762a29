"""Exit rules: when a prompt has been sampled enough, and when it is given up.

A rule inherits from `ExitRule` and is asked by the schedule: after each round, say, or after each
draw. It looks at the number of correct (`positives`) and incorrect (`negatives`) responses in a
prompt's pool.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import at_least, setting, share


class ExitRule(ABC):
    """Base class of exit rules; a rule of your own defines `satisfied` and is a frozen dataclass.

    Example:
        >>> @dataclass(frozen=True)
        ... class AnyIncorrect(ExitRule):
        ...     def satisfied(self, positives, negatives):
        ...         return negatives >= 1

    Attributes:
        uses_priors: Whether `gives_up` depends on what is believed of a prompt's pass rate.
        count: The responses of every prompt, where the rule fixes them; None where it does not.
    """

    uses_priors: bool = False
    count: int | None = None

    @abstractmethod
    def satisfied(self, positives: Any, negatives: Any) -> Any:
        """Say whether a pool with these counts is enough: a bool, or a boolean array for arrays.

        A rule may be for single counts alone; one for arrays as well is faster with budgets of
        hundreds of draws.

        Args:
            positives: n₊, correct responses; an integer, or an array of integers.
            negatives: n₋, incorrect responses; of the same shape.
        """

    def gives_up(self, chance: Any) -> Any:
        """Say whether to stop an unsatisfied prompt, which then ends as `futile`; never by default.

        Args:
            chance: The probability that the rule will be satisfied within the prompt's budget; a
                float, or an array, for which an array of the same shape is returned.
        """
        return np.zeros(np.shape(chance), dtype=bool)[()]


@dataclass(frozen=True)
class PositiveFocused(ExitRule):
    """Stop once the pool holds `positives` correct responses (Reinforce-Ada-pos, arXiv 2510.04996).

    Under this rule the pass rate of a pool leans upwards, and a prompt that is easy exits with no
    incorrect response at all: it saves draws on easy prompts, not their signal.
    """

    positives: int = setting(1, "Draw until this many responses are correct.")

    def __post_init__(self) -> None:
        at_least("positives", self.positives, 1)

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        return positives >= self.positives


@dataclass(frozen=True)
class Balanced(ExitRule):
    """Stop once the pool holds enough of both kinds (Reinforce-Ada-balance, arXiv 2510.04996).

    With halves of the group size the trained group is always half correct, half incorrect. Under
    this rule the pass rate of a pool leans toward ½.
    """

    positives: int = setting(2, "Draw until this many responses are correct.")
    negatives: int = setting(2, "Draw until this many responses are incorrect.")

    def __post_init__(self) -> None:
        at_least("positives", self.positives, 1)
        at_least("negatives", self.negatives, 1)

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        return (positives >= self.positives) & (negatives >= self.negatives)


@dataclass(frozen=True)
class FixedCount(ExitRule):
    """Stop after `samples` responses, whatever they are: with one round of them, this is GRPO."""

    samples: int = setting(4, "Draw this many responses per prompt.")

    def __post_init__(self) -> None:
        at_least("samples", self.samples, 1)

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
    """Refuse (a TypeError) what does not inherit from `ExitRule`."""
    if not isinstance(rule, ExitRule):
        raise TypeError(
            f"an exit rule inherits from rollwise.ExitRule and defines `satisfied`, got {rule!r}"
        )


@dataclass(frozen=True)
class GiveUp(ExitRule):
    """Give a prompt up once its rule is unlikely to be satisfied within what remains of its budget.

    The chance is that of the Beta-binomial: the pass rate is believed to follow a Beta
    distribution, from a prior (a prompt sampler's, else the flat one) and the responses drawn. The
    prompt then ends as `futile`, whatever its pool holds.

    Args:
        rule: When a prompt has been sampled enough.
        below: Give it up where the chance of that is below this, in [0, 1].
    """

    rule: ExitRule
    below: float = 0.1

    uses_priors = True

    def __post_init__(self) -> None:
        share("below", self.below)
        check_is_rule(self.rule)

    def satisfied(self, positives: Any, negatives: Any) -> Any:
        return self.rule.satisfied(positives, negatives)

    def gives_up(self, chance: Any) -> Any:
        return (chance < self.below) | where_given_up(self.rule, chance)


def where_satisfied(
    rule: ExitRule, positives: NDArray[np.int64], negatives: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Say of each pair of counts, arrays of one shape, whether a rule is satisfied.

    A rule that is for single counts alone is asked about one pair after another. A `PluginError`
    names a rule of the user's that did not return booleans.
    """
    try:
        answer = rule.satisfied(positives, negatives)
    except (TypeError, ValueError):  # `and`, `min` and `math.sqrt` do not take arrays
        pairs = zip(positives.flat, negatives.flat, strict=True)
        answer = np.array([is_satisfied(rule, int(n), int(m)) for n, m in pairs])
        answer = answer.reshape(positives.shape)
    return _booleans(rule, "satisfied", answer, positives.shape)


def where_given_up(rule: ExitRule, chance: Any) -> Any:
    """Say of chances of any shape whether a rule gives up; raises what `where_satisfied` does."""
    return _booleans(rule, "gives_up", rule.gives_up(chance), np.shape(chance))[()]


def is_satisfied(rule: ExitRule, positives: int, negatives: int) -> bool:
    """Say whether a rule is satisfied by two counts; raises what `where_satisfied` does."""
    answer = rule.satisfied(positives, negatives)
    if not isinstance(answer, (bool, np.bool_)):
        raise wrong_result(named_rule(rule), "satisfied", "True or False", answer)
    return bool(answer)


def named_rule(rule: Any) -> Any:
    """Return the rule that ours are wrapped around, which errors are to name."""
    while isinstance(rule, GiveUp):
        rule = rule.rule
    return rule


def _booleans(
    rule: ExitRule, method: str, answer: object, shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    met = np.asarray(answer) if isinstance(answer, (bool, np.bool_, np.ndarray)) else None
    if met is None or met.dtype != bool or met.shape not in ((), shape):
        wanted = f"a boolean array of shape {shape} for arrays, and a bool for single numbers"
        raise wrong_result(named_rule(rule), method, wanted, answer)
    return np.broadcast_to(met, shape)
