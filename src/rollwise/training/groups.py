"""From the pools of a step to what the learner is given."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.config import AdvantageSettings, GroupSettings
from rollwise.engines.engine import Prompts
from rollwise.records import Row
from rollwise.sampling import Group, Pool, advantages, select_group
from rollwise.training.backend import Example


@dataclass(frozen=True)
class TrainedGroup:
    """A prompt's group, and what it is worth.

    Attributes:
        pool: All responses to the prompt.
        members: Those that are chosen.
        advantages: Of the members, shape (k,).
        dropped: Whether the group is left out, for it carries no signal.
    """

    pool: Pool
    members: Group
    advantages: NDArray[np.float64]
    dropped: bool

    def examples(self, prompts: Prompts) -> Iterable[Example]:
        """Turn the members into what the learner takes; nothing where the group is dropped."""
        if self.dropped:
            return
        for place, advantage in zip(self.members.indices, self.advantages, strict=True):
            response = self.pool.responses[place]
            prompt = prompts[self.pool.key]
            yield Example(prompt, response.tokens, response.logprobs, float(advantage))

    def records(self, step: int, question: str, answer: str) -> Iterable[Row]:
        """Describe every response in the pool, members or not, in one row each."""
        advantage = dict(zip(self.members.indices.tolist(), self.advantages.tolist(), strict=True))
        rewards = self.pool.rewards.tolist()
        for place, (response, reward) in enumerate(zip(self.pool.responses, rewards, strict=True)):
            yield {
                "step": step,
                "key": str(self.pool.key),
                "question": question,
                "answer": answer,
                "index": response.draw.index,
                "response": response.text,
                "reward": reward,
                "advantage": advantage.get(place),
                "tokens": len(response.tokens),
                "truncated": response.truncated,
                "exit_reason": self.pool.exit_reason,
            }


def make_group(
    pool: Pool,
    group: GroupSettings,
    advantage: AdvantageSettings,
    rng: np.random.Generator,
) -> TrainedGroup:
    """Choose a pool's group and compute its advantages.

    Args:
        pool: All responses to one prompt.
        group: How to choose.
        advantage: What to compute.
        rng: Chooses the members, where they are chosen at random.
    """
    chosen_by = rng if group.order == "random" else None
    members = select_group(pool, group.size, group.strategy, chosen_by)
    values = advantages(
        pool,
        members,
        advantage.objective,
        scale_by_std=advantage.scale_by_std,
        estimates=advantage.estimates,
    )
    dropped = group.unresolved != "keep" and pool.uniform
    return TrainedGroup(pool, members, values, dropped)
