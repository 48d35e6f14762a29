"""A bound on how much one response can move the weights, from what the engine reported of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rollwise.errors import EngineError
from rollwise.step.episodes import ResponseFigures
from rollwise.step.groups import TrainedGroup
from rollwise.step.recipe import Average


def gradient_size(advantage: float, response: ResponseFigures, average: Average) -> float:
    """Estimate the norm of the gradient of a response's loss, up to a factor common to all.

    g = |A|·√(Σ_t (1 − π_t)²), and divided by T where the loss averages over each response's tokens
    first: the gradient of log π_t in the logits has a norm of at least 1 − π_t.

    Raises:
        EngineError: The engine reported no log-probabilities.
    """
    if np.isnan(response.improbability):
        raise EngineError(
            "`step.response_cap` estimates gradients from the log-probability of each token, and "
            "the engine reported none; set it to 0, or take an engine that reports them"
        )
    size = abs(advantage) * response.improbability
    return size / max(1, response.learned) if average == "responses" else size


def cap_responses(
    groups: Sequence[TrainedGroup], ratio: float, average: Average
) -> tuple[list[TrainedGroup], int]:
    """Scale down the advantages of responses whose gradients are estimated to be large.

    The largest gradient of a step can be fifty times the median one, and decides the direction of
    an update; clipping the norm of the whole update leaves nothing of the others. With c the ratio,
    A_i ← A_i·min(1, c·median(g)/g_i), where g_i is the `gradient_size` of response i, and the
    median is over those of the step that teach. Returns the groups, and how many responses were
    scaled down.
    """
    sizes = [
        np.array(
            [
                gradient_size(advantage, ResponseFigures.of(response), average)
                for response, advantage in zip(group.responses, group.advantages, strict=True)
            ]
        )
        for group in groups
    ]
    kept = [size for size, group in zip(sizes, groups, strict=True) if not group.dropped]
    known = np.concatenate([*kept, np.zeros(0)])
    if not (known > 0).any():
        return list(groups), 0
    bound = ratio * np.median(known[known > 0])
    scales = [np.divide(bound, size, out=np.ones_like(size), where=size > bound) for size in sizes]
    capped = [
        replace(group, advantages=group.advantages * scale)
        for group, scale in zip(groups, scales, strict=True)
    ]
    return capped, int((known > bound).sum())
