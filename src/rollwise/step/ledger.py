"""The ledger of a step: where every draw and every token went."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

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


def step_ledger(
    groups: Iterable[Mapping[str, Mapping[str, int]]],
    *,
    tokens: int,
    surplus: int,
    failures: int,
    failed_tokens: int = 0,
    piloted: int = 0,
    pilot_tokens: int = 0,
) -> dict[str, Any]:
    """Add up the ledgers of a step's groups (`group_ledger`), and what is in no pool.

    The draws add up to all draws and failed attempts of the step, and the tokens to all its tokens:
    those in no pool are of surplus draws.
    """
    kinds: Ledger = {
        "draws": dict.fromkeys(PLACES, 0) | {"surplus": surplus, "failed": failures},
        "tokens": dict.fromkeys(PLACES, 0) | {"failed": failed_tokens},
        "truncated": {"draws": 0, "tokens": 0},
    }
    kinds["draws"]["pilot"], kinds["tokens"]["pilot"] = piloted, pilot_tokens
    for group in groups:
        for kind, counts in kinds.items():
            for name, count in group[kind].items():
                counts[name] += count
    kinds["tokens"]["surplus"] = tokens - sum(kinds["tokens"].values())
    return {"ledger": kinds}
