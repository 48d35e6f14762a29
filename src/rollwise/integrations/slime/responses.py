"""The responses of a rollout, out of slime's samples."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.errors import RunError

PROMPT = "rollwise_prompt"
"""Names, in a sample's `metadata`, the place of its prompt in the data set."""


@dataclass(frozen=True)
class SampledResponse:
    """A response: one of slime's samples, or those that one rollout was split into.

    Attributes:
        samples: They share a reward, and get one advantage.
        reward: None if the response failed: it was aborted, or has no reward.
        tokens: The T that the model drew, without those that the loss masks.
        logprobs: The log-probability of each, shape (T,); empty if unknown.
        truncated: Whether it was cut at the limit of new tokens.
    """

    samples: Sequence[Any]
    reward: float | None
    tokens: Sequence[int]
    logprobs: NDArray[np.float32]
    truncated: bool


def responses_by_prompt(args: Any, samples: Iterable[Any]) -> dict[int, list[SampledResponse]]:
    """Sort samples by their prompts, and join those that one rollout was split into.

    Args:
        args: slime's arguments; `reward_key` says which reward counts.
        samples: slime's `Sample`s.

    Raises:
        RunError: A sample has lost its prompt, its reward is no number, or the samples of one
            rollout have different rewards.
    """
    rollouts: dict[int, dict[tuple[Any, Any], list[Any]]] = {}
    for sample in samples:
        name = sample.index if sample.rollout_id is None else sample.rollout_id
        own = rollouts.setdefault(prompt_of(sample), {})
        own.setdefault((sample.group_index, name), []).append(sample)
    return {
        place: [_response(args, parts) for parts in own.values()] for place, own in rollouts.items()
    }


def prompt_of(sample: Any) -> int:
    """Return the place of a sample's prompt in the data set.

    Raises:
        RunError: It is not known.
    """
    place = (sample.metadata or {}).get(PROMPT)
    if not isinstance(place, int):
        raise RunError(
            f"sample {sample.index} has no metadata[{PROMPT!r}], so its prompt is not known: what "
            "generates or filters samples must keep the `metadata` of those that it was given"
        )
    return place


def flat(nested: Any) -> Iterator[Any]:
    """Yield the samples of lists of lists of any depth."""
    for item in nested:
        if isinstance(item, list):
            yield from flat(item)
        else:
            yield item


def _response(args: Any, parts: Sequence[Any]) -> SampledResponse:
    rewards = {_reward(args, sample) for sample in parts}
    if len(rewards) > 1 and None not in rewards:
        raise RunError(
            f"the samples of rollout {parts[0].rollout_id} must have one reward, that of the "
            f"whole; they have {sorted(reward for reward in rewards if reward is not None)}"
        )
    masks = [np.asarray(s.loss_mask or [1] * s.response_length, dtype=bool) for s in parts]
    ends = [np.asarray(s.tokens[len(s.tokens) - s.response_length :]) for s in parts]
    tokens = [end[mask] for end, mask in zip(ends, masks, strict=True)]
    known = all(len(s.rollout_log_probs or ()) == s.response_length for s in parts)
    logprobs = [
        np.asarray(s.rollout_log_probs or (), np.float32)[mask]
        for s, mask in zip(parts if known else (), masks, strict=False)
    ]
    return SampledResponse(
        samples=parts,
        reward=None if None in rewards else rewards.pop(),
        tokens=np.concatenate(tokens).tolist(),
        logprobs=np.concatenate([np.zeros(0, np.float32), *logprobs]),
        truncated=any(sample.status.value == "truncated" for sample in parts),
    )


def _reward(args: Any, sample: Any) -> float | None:
    """Return a sample's reward; None if it was aborted, or never graded."""
    if sample.status.value == "aborted" or sample.reward is None:
        return None
    found = sample.get_reward_value(args)
    try:
        return float(found)
    except (TypeError, ValueError):
        raise RunError(
            f"the reward of sample {sample.index} must be a number, got {found!r}; if it is one of "
            "several, name it by slime's --reward-key"
        ) from None
