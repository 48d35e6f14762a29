"""One training step: ask for prompts, draw, choose groups, tell the sampler, measure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwise.prompts import PromptSampler
from rollwise.sampling import Pool
from rollwise.sampling.draws import Key
from rollwise.step.groups import TrainedGroup, make_group, normalize_advantages, normalize_gradients
from rollwise.step.metrics import rollout_metrics, tell, visit_rows
from rollwise.step.recipe import StepRecipe
from rollwise.step.response import Example, Figures, Response
from rollwise.step.rollouts import RollOut, Rollouts, draw_rollouts


@dataclass(frozen=True)
class Step:
    """A step whose responses are drawn and can be learned from.

    Attributes:
        rollouts: All responses.
        groups: One for each prompt, dropped ones included.
        metrics: Figures of the step.
        visits: A row for each prompt (`visit_rows`).
    """

    rollouts: Rollouts
    groups: list[TrainedGroup]
    metrics: dict[str, Any]
    visits: list[dict[str, Any]]

    def examples(
        self, prompts: Mapping[Key, Sequence[int]], seed: Sequence[int] | None = None
    ) -> list[Example]:
        """Return what the learner takes; `prompts` holds the token ids of each prompt.

        With a seed, prompts are in random order, each with its responses, so that no mini-batch
        consists of what the sampler put first.
        """
        groups = list(self.groups)
        if seed is not None:
            np.random.default_rng(seed).shuffle(groups)
        return [example for group in groups for example in group.examples(prompts)]


def take_step(recipe: StepRecipe, sampler: PromptSampler, roll_out: RollOut, number: int) -> Step:
    """Ask, draw, choose groups, compute advantages, tell; `number` is the step's, from 1.

    The sampler gets the results before this returns, so its beliefs are never a step behind.
    """
    return learn_from(recipe, sampler, draw_rollouts(recipe, sampler, roll_out, number))


def learn_from(recipe: StepRecipe, sampler: PromptSampler, rollouts: Rollouts) -> Step:
    """Do what `take_step` does once the responses are drawn.

    Raises:
        TypeError: A pool holds something other than a `Response`, or its `Figures`.
    """
    pools = [pool for session in rollouts.sessions for pool in session.pools.values()]
    for response in (response for pool in pools for response in pool.responses):
        if not isinstance(response, Response | Figures):
            got = f"{type(response).__name__}: {response!r:.100}"
            raise TypeError(f"a session must record a `rollwise.step.Response`, got {got}")
    groups = make_groups(recipe, rollouts.pools, lambda pool: make_group(recipe, pool))
    return conclude(recipe, sampler, rollouts, groups)


def conclude(
    recipe: StepRecipe, sampler: PromptSampler, rollouts: Rollouts, groups: list[TrainedGroup]
) -> Step:
    """Tell the sampler what was drawn, and measure the step, once `make_groups` has its groups."""
    own = rollouts.session.pools
    others = [p for pilot in rollouts.pilots for k, p in pilot.pools.items() if k not in own]
    trained = [*(group.trained for group in groups), *(0 for _ in others)]
    visits = visit_rows(sampler, [*own.values(), *others], trained)
    metrics = {
        **rollout_metrics(rollouts, groups, recipe.group_size),
        **tell(sampler, *rollouts.counts()),
        "seconds": {"sampling": rollouts.cost.sampling, "grading": rollouts.cost.grading},
    }
    return Step(rollouts, groups, metrics, visits)


def make_groups(
    recipe: StepRecipe, pools: Sequence[Pool], make: Callable[[Pool], TrainedGroup]
) -> list[TrainedGroup]:
    """Make the groups of a step, with advantages that take the step's other prompts into account.

    `make` makes a pool's group.
    """
    groups = normalize_advantages([make(pool) for pool in pools], recipe.normalize_advantages)
    if recipe.normalize_gradients:
        groups = normalize_gradients(groups, recipe.average)
    return groups
