"""The one argument that `AdaptiveGRPOTrainer` adds to those of TRL."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rollwise.beliefs import LogitKalman
from rollwise.prompts import Posterior, PromptSampler, Uniform
from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.draws import Key
from rollwise.step import SINGLE_RESPONSES, StepRecipe
from rollwise.step.recipe import Average

EngineName = Literal["auto", "trl"]

AVERAGED_BY_RESPONSE = ("grpo", "sapo")
"""The losses that average over each response's tokens first."""

MakeSampler = Callable[..., PromptSampler]
"""Called with `keys` (the rows of the data set, by number), `batch_size` and `seed`."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveSampling(StepRecipe):
    """How the prompts of a step are sampled, what is learned from them, and what draws responses.

    Besides the arguments below it takes those of `StepRecipe`, except those that TRL has a setting
    for: the division by the standard deviation (`scale_rewards`), the average (`loss_type`) and the
    `seed`.
    `generation_batch_size / group_size` is the number of prompts of a step. `Streamed` needs
    rollwise's engine. `strategy="all"` is possible only where no prompt can get more than
    `group_size` draws.

    Args:
        group_size: Members of a group; by default TRL's `num_generations`, which is at least 2.
            Groups of 1 need `baseline="belief"`.
        prompt_sampler: Makes the sampler, from `keys`, `batch_size` and `seed`: a class such as
            `CDAS`, or `functools.partial` of one with its settings.
        engine: What draws responses. `trl`: whatever TRL is set to use. `auto`: rollwise's engine,
            seeded draw by draw, where it can do what TRL's settings ask for.
        engine_batch_size: Responses drawn at a time in each process; by default as many as TRL
            draws (`per_device_train_batch_size * steps_per_generation`). vLLM chooses its own.

    Raises:
        ValueError: A setting is out of range, or two settings exclude each other.
    """

    group_size: int | None = None  # type: ignore[assignment]
    scale_by_std: bool = field(default=False, init=False)
    average: Average = field(default="tokens", init=False)
    seed: int = field(default=0, init=False)
    prompt_sampler: MakeSampler = Uniform
    engine: EngineName = "auto"
    engine_batch_size: int | None = None

    def __post_init__(self) -> None:
        self.check_choices()
        one_of("engine", self.engine, get_args(EngineName))
        for name in ("group_size", "engine_batch_size"):
            if (given := getattr(self, name)) is not None:
                at_least(name, given, 1)

    def recipe(
        self, num_generations: int, scale_rewards: Any, loss_type: str, seed: int
    ) -> StepRecipe:
        """Return the recipe of a step, completed by TRL's settings of these names.

        A ValueError names settings that exclude each other, and what would work.
        """
        given = {item.name: getattr(self, item.name) for item in dataclasses.fields(StepRecipe)}
        if scale_rewards not in ("group", "none"):
            raise ValueError(
                "scale_rewards must be 'group' (divide by the standard deviation of a prompt's "
                f"responses) or 'none', got {scale_rewards!r}"
            )
        size = self.group_size or num_generations
        scale_by_std = size > 1 and scale_rewards == "group"  # one response has no deviation
        if scale_by_std and self.objective not in ("reference", "grpo"):
            raise ValueError(
                f"objective={self.objective!r} needs scale_rewards='none' in GRPOConfig"
            )
        average = "responses" if loss_type in AVERAGED_BY_RESPONSE else "tokens"
        given |= {"group_size": size, "average": average, "seed": seed}
        recipe = StepRecipe(**given | {"scale_by_std": scale_by_std})
        schedule = recipe.resolved_schedule
        most = max(schedule.max_samples, recipe.pilot)
        if schedule.max_samples < size or (self.strategy == "all" and most > size):
            raise ValueError(
                f"{self.allocation or schedule} allows {most} draws per prompt; TRL trains on "
                f"groups of {size} (group_size, or num_generations), which need at least as many, "
                f"and with strategy='all' no more: set group_size={most}, or the schedule"
            )
        return recipe


def single_responses(**changed: Any) -> AdaptiveSampling:
    """Return the default, as in `rollwise train`: single responses compared with a belief.

    A generation step has `generation_batch_size` prompts, half of them random, and half with a pass
    rate that is probably near one half. `num_generations` matters to evaluation alone.

    Args:
        **changed: Arguments of `AdaptiveSampling` to change.
    """
    return AdaptiveSampling(**{**SINGLE_RESPONSES, "prompt_sampler": _by_posterior, **changed})


def _by_posterior(keys: Sequence[Key], batch_size: int, seed: int) -> PromptSampler:
    return Posterior(keys, batch_size, seed, exploration=0.5, belief=LogitKalman(len(keys)))
