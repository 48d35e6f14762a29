"""The ledger of a step: where every draw and every token went."""

from collections import Counter
from collections.abc import Iterable

from rollwise.step.figures import ResponseFigures
from rollwise.step.groups import TrainedGroup
from rollwise.step.rollouts import Rollouts

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
    cut = [response.tokens for response in figures if response.truncated]
    draws, tokens = Counter[str](), Counter[str]()
    rest = "spare" if group.teaches else "zero_variance"
    trained = set(group.members.indices[group.advantages != 0].tolist()) if group.teaches else ()
    for place, response in enumerate(figures):
        where = "trained" if place in trained else rest
        draws[where] += 1
        tokens[where] += response.tokens
    return {"draws": draws, "tokens": tokens, "truncated": {"draws": len(cut), "tokens": sum(cut)}}


def step_ledger(rollouts: Rollouts, groups: Iterable[TrainedGroup]) -> Ledger:
    """Add up the ledgers of a step's groups (`group_ledger`), and what is in no pool.

    The draws add up to all draws and failed attempts of the step, and the tokens to all its tokens:
    those in no pool are of surplus draws.
    """
    session, cost = rollouts.session, rollouts.cost
    pools = [pool for pilot in rollouts.pilots for pool in pilot.pools.values()]
    piloted = [ResponseFigures.of(r).tokens for pool in pools for r in pool.responses]
    draws = {"surplus": session.surplus, "failed": session.failures, "pilot": len(piloted)}
    tokens = {"failed": cost.failed_tokens, "pilot": sum(piloted)}
    ledger: Ledger = {
        "draws": dict.fromkeys(PLACES, 0) | draws,
        "tokens": dict.fromkeys(PLACES, 0) | tokens,
        "truncated": {"draws": 0, "tokens": 0},
    }
    for of_group in map(group_ledger, groups):
        for kind, counts in ledger.items():
            for name, count in of_group[kind].items():
                counts[name] += count
    ledger["tokens"]["surplus"] = cost.tokens - sum(ledger["tokens"].values())
    return ledger
