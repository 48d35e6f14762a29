"""What a step found of each of its prompts, told to the prompt sampler and described in rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import metrics_of
from rollwise.prompts import PromptSampler
from rollwise.sampling import Pool
from rollwise.sampling.draws import Key
from rollwise.step.asking import expected_of, priors_of
from rollwise.step.metrics import belief_metrics


def tell(
    sampler: PromptSampler, keys: Sequence[Key], correct: Sequence[int], drawn: Sequence[int]
) -> dict[str, Any]:
    """Tell a sampler how many responses to a step's prompts were correct; returns its metrics.

    Those are what it had believed of the prompts (`belief_metrics`), and its own after.
    """
    believed = belief_metrics(sampler, keys, correct, drawn)
    sampler.tell(keys, correct=correct, drawn=drawn)
    return believed | metrics_of(sampler)


def visit_rows(
    sampler: PromptSampler, pools: Sequence[Pool], trained: Sequence[int]
) -> list[dict[str, Any]]:
    """Describe each prompt of a step in a row, before the sampler is told the results.

    `expected` and its `strength` in pseudo-counts are the sampler's, None where it expects nothing;
    `trained` holds how many responses of each are trained on.
    """
    keys: list[Key] = [pool.key for pool in pools]
    expected_P = expected_of(sampler, keys)
    strength_P: NDArray[np.float64] = np.sum(priors_of(sampler, keys), axis=1)
    return [
        {
            "key": str(pool.key),
            "correct": int(pool.positives),
            "drawn": len(pool),
            "reward": float(np.mean(pool.rewards)) if len(pool) else None,
            "expected": None if np.isnan(expected) else round(float(expected), 4),
            "strength": None if np.isnan(expected) else round(float(strength), 2),
            "trained": int(count),
            "exit_reason": pool.exit_reason,
        }
        for pool, expected, strength, count in zip(
            pools, expected_P, strength_P, trained, strict=True
        )
    ]
