"""From the pools of a step to the learner's examples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.errors import EngineError
from rollwise.sampling import Group, Pool, Score, select_group
from rollwise.sampling.draws import Key
from rollwise.sampling.objectives import STD_EPSILON, advantages_by, without_rounding
from rollwise.sampling.score import acc_of
from rollwise.step.recipe import Average, Normalization, StepRecipe
from rollwise.step.response import Example, Figures, Response

CERTAIN = 1e-5
"""What √Σ(1 − π)² of certain tokens may come out as: 1e-7 for each of 10,000 tokens."""


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
            yield from response.examples(prompt, advantage)

    def records(self, step: int, question: str, answer: str) -> Iterable[dict[str, Any]]:
        """Describe every response in the pool, members or not, in one row each."""
        advantage = dict(zip(self.members.indices.tolist(), self.advantages.tolist(), strict=True))
        pairs = zip(self.pool.responses, self.pool.scores, strict=True)
        for place, (response, reward) in enumerate(pairs):
            yield {
                "step": step,
                "key": str(self.pool.key),
                "question": question,
                "answer": answer,
                **response_row(response, reward),
                "advantage": advantage.get(place),
                "exit_reason": self.pool.exit_reason,
            }


def response_row(response: Response, reward: float) -> dict[str, Any]:
    """Describe a response and its reward, which may be a `Score`, in a row."""
    parts = reward.parts if isinstance(reward, Score) else {}
    return {
        "index": response.draw.index if response.draw else None,
        "response": response.text if response.transcript is None else response.transcript,
        "reward": float(reward),
        "acc": float(acc_of(reward)),
        **{f"rewards/{name}": value for name, value in parts.items()},
        "tokens": response.figures.tokens,
        "truncated": response.truncated,
        "turns": response.turns or 1,
        "end": response.end,
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

    def of(group: TrainedGroup) -> TrainedGroup:
        centred = without_rounding(group.advantages - mean, values)
        return replace(group, advantages=centred / scale)

    return [group if group.dropped else of(group) for group in groups]


def score_norm(response: Figures, average: Average) -> float:
    """Estimate the norm of ∇ log π of a response, its score, up to a factor common to all.

    √(Σ_t (1 − π_t)²), and divided by T where the loss averages over each response's tokens first:
    the gradient of log π_t in the logits has a norm of at least 1 − π_t.

    It is 0 where every token was certain up to float32's rounding.

    Raises:
        EngineError: The engine reported no log-probabilities.
    """
    if np.isnan(response.improbability):
        raise EngineError(
            "`step.normalize_gradients` estimates gradients from the log-probability of each "
            "token, and the engine reported none; turn it off, or take an engine that reports them"
        )
    size = response.improbability if response.improbability > CERTAIN else 0.0
    return size / max(1, response.learned) if average == "responses" else size


def normalize_gradients(groups: Sequence[TrainedGroup], average: Average) -> list[TrainedGroup]:
    """Divide each advantage by the norm of its response's score.

    A_i ← A_i·m/max(s_i, m/10), where s_i is the `score_norm` of response i, and m the median over
    those of the step that teach. The gradient of a response then has an estimated norm of |A_i|,
    up to a common factor; without this, confident responses hardly count.

    The gradient is biased: s_i depends on the response, so that the baseline does not cancel. Of
    two responses with π = .9 and .1 that both exceed the belief by ½, the first gets nine times
    the advantage of the second, where the unbiased gradient is 0.
    """
    norms = [
        np.array([score_norm(r.figures, average) for r in group.responses]) for group in groups
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
