"""The ledger of a step: where every draw and every token went."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rollwise.step.figures import ResponseFigures
from rollwise.step.groups import TrainedGroup

Ledger = dict[str, dict[str, int]]
"""`draws` and `tokens` by where they went, and `truncated`: how many draws, and tokens, of those
in pools were cut at the limit."""

PLACES = ("trained", "spare", "zero_variance", "surplus", "pilot", "failed")
"""Where a draw goes: into a group that is learned from; into the pool of one, but unchosen or with
advantage 0; into a pool that teaches nothing, because all advantages are 0;
beyond its prompt's exit; to a pilot; or its attempt failed."""


def group_ledger(group: TrainedGroup) -> Ledger:
    """Say where the draws of a prompt's pool went; places to which none went are left out."""
    figures = [ResponseFigures.of(response) for response in group.pool.responses]
    lengths = [response.tokens for response in figures]
    cut = [response.tokens for response in figures if response.truncated]
    draws, tokens = Counter[str](), Counter[str]()
    trained = set(group.members.indices[group.advantages != 0].tolist())
    for place, length in enumerate(lengths):
        where = ("trained" if place in trained else "spare") if group.teaches else "zero_variance"
        draws[where] += 1
        tokens[where] += length
    return {
        "draws": dict(draws),
        "tokens": dict(tokens),
        "truncated": {"draws": len(cut), "tokens": sum(cut)},
    }


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """What a step has drawn beside its pools.

    Attributes:
        tokens: Of all responses of the step, those in pools included.
        surplus: Draws beyond a prompt's exit.
        failures: Failed attempts at draws.
        lost: Draws that were given up after repeated failures.
        failed_tokens: Of failed attempts, as far as they are known.
        piloted: Draws of pilots.
        pilot_tokens: Their tokens.
        ends: How many episodes ended in which way; none if all draws are single responses.
    """

    tokens: int
    surplus: int = 0
    failures: int = 0
    lost: int = 0
    failed_tokens: int = 0
    piloted: int = 0
    pilot_tokens: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)


def step_ledger(groups: Iterable[Ledger], totals: StepTotals) -> Ledger:
    """Add up the ledgers of a step's groups (`group_ledger`), and what is in no pool.

    The draws add up to all draws and failed attempts of the step, and the tokens to all its tokens:
    those in no pool are of surplus draws.
    """
    counted = {"surplus": totals.surplus, "failed": totals.failures, "pilot": totals.piloted}
    known = {"failed": totals.failed_tokens, "pilot": totals.pilot_tokens}
    ledger: Ledger = {
        "draws": dict.fromkeys(PLACES, 0) | counted,
        "tokens": dict.fromkeys(PLACES, 0) | known,
        "truncated": {"draws": 0, "tokens": 0},
    }
    for group in groups:
        for kind, counts in ledger.items():
            for name, count in group[kind].items():
                counts[name] += count
    ledger["tokens"]["surplus"] = totals.tokens - sum(ledger["tokens"].values())
    return ledger
