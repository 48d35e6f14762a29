"""The responses of a rollout, out of slime's samples."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollwise.errors import RunError

PROMPT = "rollwise_prompt"
"""Names, in a sample's `metadata`, the place of its prompt in the data set."""


class SampledResponse(NamedTuple):
    """A response: one of slime's samples, or those that one rollout was split into.

    The `reward` is None if the response failed; `tokens` are those that the model drew and the loss
    does not mask, and `logprobs` the log-probability of each, empty if unknown.
    """

    samples: Sequence[Any]
    reward: float | None
    tokens: Sequence[int]
    logprobs: NDArray[np.float32]
    truncated: bool


def responses_by_prompt(args: Any, samples: Iterable[Any]) -> dict[int, list[SampledResponse]]:
    """Sort slime's samples by their prompts, and join those that one rollout was split into."""
    rollouts: dict[int, dict[tuple[Any, Any], list[Any]]] = {}
    for sample in samples:
        name = sample.index if sample.rollout_id is None else sample.rollout_id
        own = rollouts.setdefault(prompt_of(sample), {})
        own.setdefault((sample.group_index, name), []).append(sample)
    return {
        place: [_response(args, parts) for parts in own.values()] for place, own in rollouts.items()
    }


def prompt_of(sample: Any) -> int:
    """Return the place of a sample's prompt in the data set."""
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
        yield from flat(item) if isinstance(item, list) else (item,)


def _response(args: Any, parts: Sequence[Any]) -> SampledResponse:
    rewards = {_reward(args, sample) for sample in parts}
    if len(rewards) > 1 and None not in rewards:
        raise RunError(
            f"the samples of rollout {parts[0].rollout_id} must have one reward, that of the "
            f"whole; they have {sorted(reward for reward in rewards if reward is not None)}"
        )
    tokens: list[int] = []
    logprobs: list[float] = []
    for sample in parts:
        length = sample.response_length
        mask = np.asarray(sample.loss_mask or [1] * length, dtype=bool)
        tokens += np.asarray(sample.tokens[len(sample.tokens) - length :])[mask].tolist()
        if len(sample.rollout_log_probs or ()) == length:
            logprobs += np.asarray(sample.rollout_log_probs or ())[mask].tolist()
    known = np.array(logprobs if len(logprobs) == len(tokens) else (), np.float32)
    truncated = any(sample.status.value == "truncated" for sample in parts)
    reward = None if None in rewards else rewards.pop()
    return SampledResponse(parts, reward, tokens, known, truncated)


def _reward(args: Any, sample: Any) -> float | None:
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
