"""From the pools of a step to the learner's examples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.errors import EngineError
from rollwise.sampling import Group, Pool, select_group
from rollwise.sampling.draws import Key
from rollwise.sampling.objectives import STD_EPSILON, advantages_by
from rollwise.step.episodes import Episode, Example, ResponseFigures
from rollwise.step.recipe import Average, Normalization, StepRecipe


@dataclass(frozen=True)
class TrainedGroup:
    """A prompt's group, with the advantages of its members.

    Attributes:
        pool: All responses to the prompt.
        members: Those chosen for training.
        advantages: Of the members, shape (k,).
        dropped: Whether the group is left out because it carries no signal.
    """

    pool: Pool
    members: Group
    advantages: NDArray[np.float64]
    dropped: bool

    @property
    def responses(self) -> list[Any]:
        """The members' responses, k of them."""
        return [self.pool.responses[place] for place in self.members.indices]

    @property
    def teaches(self) -> bool:
        """Whether it moves the weights: it is trained on, and not all advantages are 0."""
        return not self.dropped and bool(np.any(self.advantages != 0))

    @property
    def trained(self) -> int:
        """How many members are learned from."""
        return int(np.count_nonzero(self.advantages)) if self.teaches else 0

    def examples(self, prompts: Mapping[Key, Sequence[int]]) -> Iterable[Example]:
        """Turn the members into what the learner takes; nothing if the group is dropped.

        A member is one example, or, if it is an episode of several rows, one for each row.
        `prompts` holds the token ids of each prompt.
        """
        if self.dropped:
            return
        prompt = prompts[self.pool.key]
        for response, advantage in zip(self.responses, self.advantages.tolist(), strict=True):
            yield from Episode.of(response).examples(prompt, advantage)

    def records(self, step: int, question: str, answer: str) -> Iterable[dict[str, Any]]:
        """Describe every response in the pool, members or not, in one row each.

        The responses must have `draw` and `text` as well.
        """
        advantage = dict(zip(self.members.indices.tolist(), self.advantages.tolist(), strict=True))
        rewards = self.pool.rewards.tolist()
        for place, (response, reward) in enumerate(zip(self.pool.responses, rewards, strict=True)):
            yield {
                "step": step,
                "key": str(self.pool.key),
                "question": question,
                "answer": answer,
                **response_row(response, reward),
                "advantage": advantage.get(place),
                "exit_reason": self.pool.exit_reason,
            }


def response_row(response: Any, reward: float) -> dict[str, Any]:
    """Describe a response, which must have `draw` and `text` as well, in a row."""
    episode = Episode.of(response)
    return {
        "index": response.draw.index,
        "response": getattr(response, "transcript", response.text),
        "reward": reward,
        "tokens": episode.usage.tokens,
        "truncated": response.truncated,
        "turns": episode.usage.turns,
        "end": episode.end,
    }


def make_group(recipe: StepRecipe, pool: Pool) -> TrainedGroup:
    """Choose a pool's group, and compute its advantages by the recipe's objective."""
    members = select_group(pool, recipe.group_size, recipe.strategy)
    objective = recipe.resolved_objective
    values = advantages_by(objective, pool, members)
    # Against a belief, equal rewards teach as well, and leaving them out would bias the gradient.
    dropped = recipe.zero_variance != "keep" and pool.zero_variance and not objective.uses_priors
    return TrainedGroup(pool, members, values, dropped)


def normalize_advantages(
    groups: Sequence[TrainedGroup], by: Normalization = "standardize"
) -> list[TrainedGroup]:
    """Give the advantages of a step's groups a mean of 0, and a standard deviation of 1.

    A ← A − mean over all members that are learned from, which makes the batch's mean the baseline
    of raw rewards (FlashREINFORCE); with `standardize`, A ← (A − mean)/(std + 1e-4) (REINFORCE++,
    arXiv 2501.03262; SPO, arXiv 2509.13232, section 3.2). Dropped groups stay as they are.
    """
    if by == "none":
        return list(groups)
    kept = [group.advantages for group in groups if not group.dropped]
    if not kept:
        return list(groups)
    values = np.concatenate(kept)
    mean = values.mean()
    scale = values.std() + STD_EPSILON if by == "standardize" else 1.0
    return [
        group if group.dropped else replace(group, advantages=(group.advantages - mean) / scale)
        for group in groups
    ]


def score_norm(response: ResponseFigures, average: Average) -> float:
    """Estimate the norm of ∇ log π of a response, its score, up to a factor common to all.

    √(Σ_t (1 − π_t)²), and divided by T where the loss averages over each response's tokens first:
    the gradient of log π_t in the logits has a norm of at least 1 − π_t.

    Raises:
        EngineError: The engine reported no log-probabilities.
    """
    if np.isnan(response.improbability):
        raise EngineError(
            "`step.normalize_gradients` estimates gradients from the log-probability of each "
            "token, and the engine reported none; turn it off, or take an engine that reports them"
        )
    size = response.improbability
    return size / max(1, response.learned) if average == "responses" else size


def normalize_gradients(groups: Sequence[TrainedGroup], average: Average) -> list[TrainedGroup]:
    """Divide each advantage by the norm of its response's score.

    A_i ← A_i·m/max(s_i, m/10), where s_i is the `score_norm` of response i, and m the median over
    those of the step that teach. The gradient of a response then has an estimated norm of |A_i|,
    up to a common factor; without this, confident responses hardly count.
    """
    norms = [
        np.array([score_norm(ResponseFigures.of(r), average) for r in group.responses])
        for group in groups
    ]
    pairs = zip(groups, norms, strict=True)
    known = [s[(s > 0) & (group.advantages != 0)] for group, s in pairs if not group.dropped]
    if not any(map(len, known)):
        return list(groups)
    median = np.median(np.concatenate(known))
    return [
        replace(group, advantages=group.advantages * median / np.maximum(norm, median / 10))
        for group, norm in zip(groups, norms, strict=True)
    ]
