"""The responses of a rollout, out of slime's samples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rollwise.errors import RunError
from rollwise.step import Episode, Usage
from rollwise.step.episodes import spans_by_mask

PROMPT = "rollwise_prompt"
"""Names, in a sample's `metadata`, the place of its prompt in the data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledEpisode(Episode):
    """One of slime's samples, or those that one rollout was split into; no reward if it failed."""

    samples: Sequence[Any]


def episodes_of(args: Any, samples: Iterable[Any]) -> list[tuple[int, SampledEpisode]]:
    """Join slime's samples that one rollout was split into; returns prompts with episodes."""
    rollouts: dict[tuple[Any, ...], list[Any]] = {}
    for sample in samples:
        name = sample.index if sample.rollout_id is None else sample.rollout_id
        rollouts.setdefault((prompt_of(sample), sample.group_index, name), []).append(sample)
    return [(place, _episode(args, parts)) for (place, *_), parts in rollouts.items()]


def prompt_of(sample: Any) -> int:
    """Return the place of a sample's prompt in the data set."""
    place = (sample.metadata or {}).get(PROMPT)
    if not isinstance(place, int):
        raise RunError(
            f"sample {sample.index} has no metadata[{PROMPT!r}], so its prompt is not known: what "
            "generates or filters samples must keep the `metadata` of those that it was given"
        )
    return place


def _episode(args: Any, parts: Sequence[Any]) -> SampledEpisode:
    rewards = {_reward(args, sample) for sample in parts}
    if len(rewards) > 1 and None not in rewards:
        raise RunError(
            f"the samples of rollout {parts[0].rollout_id} must have one reward, that of the "
            f"whole; they have {sorted(reward for reward in rewards if reward is not None)}"
        )
    rows = []
    for sample in parts:
        length, known = sample.response_length, sample.rollout_log_probs or ()
        begin, mask = len(sample.tokens) - length, sample.loss_mask or [1] * length
        spans = spans_by_mask(sample.tokens[begin:], mask, known if len(known) == length else None)
        rows.append((sample.tokens[:begin], spans))
    own = [span for _, spans in rows for span in spans if span.logprobs is not None]
    return SampledEpisode(
        spans=rows[0][1],
        branches=rows[1:],
        usage=Usage(sum(len(span.tokens) for span in own), turns=len(own)),
        end="truncated" if any(s.status.value == "truncated" for s in parts) else "done",
        reward=None if None in rewards else rewards.pop(),
        samples=parts,
    )


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
