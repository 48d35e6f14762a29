"""A bound on how much one response can move the weights, from what the engine reported of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.errors import EngineError
from rollwise.step.episodes import Episode
from rollwise.step.groups import Response, TrainedGroup
from rollwise.step.recipe import Average


def gradient_size(advantage: float, logprobs: ArrayLike, average: Average) -> float:
    """Estimate the norm of the gradient of a response's loss, up to a factor common to all.

    g = |A|·√(Σ_t (1 − π_t)²), and divided by T where the loss averages over each response's tokens
    first. The gradient of log π_t in the logits has the norm √((1 − π_t)² + Σ_{others} π²), at
    least 1 − π_t: a response has a large gradient where it says improbable things.

    Args:
        advantage: A.
        logprobs: log π_t of the tokens that the model drew, at the temperature it drew at, (T,).
        average: How the loss is averaged.

    Returns:
        At least 0; 0 for a response without tokens.
    """
    improbable = -np.expm1(np.asarray(logprobs, dtype=np.float64))
    size = abs(advantage) * float(np.sqrt(np.sum(improbable**2)))
    return size / max(1, improbable.size) if average == "responses" else size


def cap_responses(
    groups: Sequence[TrainedGroup], ratio: float, average: Average
) -> tuple[list[TrainedGroup], int]:
    """Scale down the advantages of responses whose gradients are estimated to be large.

    Gradients of responses have heavy tails: the largest of a step can be fifty times the median
    one. It then decides the direction of an update, and clipping the norm of the whole update
    leaves nothing of the others. With c the ratio, A_i ← A_i·min(1, c·median(g)/g_i), where g_i is
    the `gradient_size` of response i, and the median is over those of the step that teach.

    Args:
        groups: Of a step.
        ratio: c, above 0.
        average: How the learner averages its loss.

    Returns:
        The groups, and how many responses were scaled down.

    Raises:
        EngineError: The engine reported no log-probabilities.
    """
    sizes = [
        np.array(
            [
                gradient_size(advantage, _drawn_logprobs(response), average)
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


def _drawn_logprobs(response: Response) -> NDArray[np.float64]:
    """Return log π of every token that the model drew in a response, over all of its rows."""
    rows = Episode.of(response).rows(())
    if any(len(row.tokens) and not len(row.logprobs) for row in rows):
        raise EngineError(
            "`step.response_cap` estimates gradients from the log-probability of each token, and "
            "the engine reported none; set it to 0, or take an engine that reports them"
        )
    return np.concatenate([np.zeros(0), *(row.logprobs[row.loss_mask] for row in rows)])
