"""One training step: ask for prompts, draw, choose groups, tell the sampler, measure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwise.prompts import PromptSampler
from rollwise.sampling import Pool
from rollwise.sampling.draws import Key
from rollwise.step.episodes import Example
from rollwise.step.groups import TrainedGroup, make_group, normalize_advantages, normalize_gradients
from rollwise.step.metrics import rollout_metrics, tell, visit_rows
from rollwise.step.recipe import StepRecipe
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

    def examples(self, prompts: Mapping[Key, Sequence[int]]) -> list[Example]:
        """Return what the learner takes; `prompts` holds the token ids of each prompt."""
        return [example for group in self.groups for example in group.examples(prompts)]


def take_step(recipe: StepRecipe, sampler: PromptSampler, roll_out: RollOut, number: int) -> Step:
    """Ask, draw, choose groups, compute advantages, tell; `number` is the step's, from 1.

    The sampler gets the results before this returns, so its beliefs are never a step behind.
    """
    return learn_from(recipe, sampler, draw_rollouts(recipe, sampler, roll_out, number))


def learn_from(recipe: StepRecipe, sampler: PromptSampler, rollouts: Rollouts) -> Step:
    """Do what `take_step` does once the responses are drawn."""
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
