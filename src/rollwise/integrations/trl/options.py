"""The one argument that `AdaptiveGRPOTrainer` adds to TRL's, and those that exclude it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from transformers import ProcessorMixin

from rollwise.prompts import PromptSampler, Uniform
from rollwise.sampling.checks import Count
from rollwise.step import StepRecipe
from rollwise.step.recipe import Average


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
        prompt_sampler: Makes the sampler, from `keys` (numbers of rows), `batch_size` and `seed`: a
            class such as `CDAS`, or `functools.partial` of one with its settings.
        engine: What draws responses. `trl`: whatever TRL is set to use. `auto`: rollwise's engine,
            seeded draw by draw, where it can do what TRL's settings ask for.
        engine_batch_size: Responses drawn at a time in each process; by default as many as TRL
            draws (`per_device_train_batch_size * steps_per_generation`). vLLM chooses its own.
        method: The method that this comes from (`method_sampling`); None for one's own.

    Raises:
        ValueError: A setting is out of range, or two settings exclude each other.
    """

    group_size: Count | None = None  # type: ignore[assignment]
    scale_by_std: bool = field(default=False, init=False)
    average: Average = field(default="tokens", init=False)
    seed: int = field(default=0, init=False)
    prompt_sampler: Callable[..., PromptSampler] = Uniform
    engine: Literal["auto", "trl"] = "auto"
    engine_batch_size: Count | None = None
    method: str | None = None

    def __post_init__(self) -> None:
        self.check_choices()

    def recipe(self, grpo: Any) -> StepRecipe:
        """Return the recipe of a step, completed by TRL's `GRPOConfig`.

        A ValueError names settings that exclude each other, and what would work.
        """
        scale_rewards, size = grpo.scale_rewards, self.group_size or grpo.num_generations
        if scale_rewards not in ("group", "none"):
            raise ValueError(
                "scale_rewards must be 'group' (divide by the standard deviation of a prompt's "
                f"responses) or 'none', got {scale_rewards!r}"
            )
        scale_by_std = size > 1 and scale_rewards == "group"  # one response has no deviation
        if scale_by_std and self.objective not in ("reference", "grpo"):
            raise ValueError(
                f"objective={self.objective!r} needs scale_rewards='none' in GRPOConfig"
            )
        given = {item.name: getattr(self, item.name) for item in dataclasses.fields(StepRecipe)}
        by_response = grpo.loss_type in ("grpo", "sapo")  # average over each one's tokens first
        average = "responses" if by_response else "tokens"
        by_trl = {"scale_by_std": scale_by_std, "average": average, "seed": grpo.seed}
        recipe = StepRecipe(**given | {"group_size": size} | by_trl)
        schedule = recipe.resolved_schedule
        most = max(schedule.max_samples, recipe.pilot)
        if schedule.max_samples < size or (self.strategy == "all" and most > size):
            raise ValueError(
                f"{self.allocation or schedule} allows {most} draws per prompt; TRL trains on "
                f"groups of {size} (group_size, or num_generations), which need at least as many, "
                f"and with strategy='all' no more: set group_size={most}, or the schedule"
            )
        return recipe


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of `GRPOTrainer` that cannot be combined with adaptive sampling, by name."""
    for name in ("rollout_func", "tools", "environment_factory"):
        if arguments.get(name):
            raise ValueError(
                f"{name} cannot be used with AdaptiveGRPOTrainer, which draws single responses "
                "itself; for several turns use `episode.type` of `rollwise train`, or verl's agent "
                "loops by `rollwise verl`"
            )
    if isinstance(arguments.get("processing_class"), ProcessorMixin):
        raise ValueError(
            "processing_class must be a tokenizer: prompts with images are not supported"
        )
    if (rows := arguments.get("train_dataset")) is not None:
        check_data(rows)


def check_data(rows: Any) -> None:
    """Refuse a data set whose rows cannot be chosen by number."""
    if not hasattr(rows, "__len__"):
        raise ValueError(
            "train_dataset must be a data set whose rows have numbers, because the prompt sampler "
            f"chooses among them; got {type(rows).__name__}"
        )


def check_settings(trainer: Any, sampling: AdaptiveSampling, recipe: StepRecipe) -> None:
    """Refuse settings of TRL that cannot be combined with how prompts are sampled, by name."""
    aggregation = trainer.args.multi_objective_aggregation
    if aggregation != "sum_then_normalize":
        raise ValueError(
            "multi_objective_aggregation must be 'sum_then_normalize': advantages are computed "
            f"from the weighted sum of rewards; got {aggregation!r}"
        )
    rows, size = trainer.args.generation_batch_size, recipe.group_size
    if rows % size:
        raise ValueError(
            f"group_size must divide generation_batch_size, which is {rows}, so that the batch "
            f"holds whole groups; got {size}"
        )
    prompts = rows // size
    if prompts > len(trainer.train_dataset):
        raise ValueError(
            f"train_dataset must hold the prompts of a step, {prompts} (generation_batch_size, "
            f"{rows}, over the size of a group, {size}); it has {len(trainer.train_dataset)}"
        )
    if recipe.normalize_gradients and not reports_logprobs(trainer, sampling):
        raise ValueError(
            "normalize_gradients needs the log-probability of each token, which rollwise's engine "
            "and vLLM report, and TRL's own generation does not; turn it off"
        )
    asked, schedule = beyond_own_engine(trainer), recipe.resolved_schedule
    if schedule.draws_ahead and not takes_own_engine(trainer, sampling):
        raise ValueError(
            f"{schedule} needs rollwise's engine, and TRL's own generation, which draws in rounds, "
            f"is set by {', '.join(asked) or 'engine'}; use Rounds"
        )


def takes_own_engine(trainer: Any, sampling: AdaptiveSampling) -> bool:
    """Return whether rollwise's engine draws, rather than TRL's own generation."""
    return sampling.engine != "trl" and not beyond_own_engine(trainer)


def reports_logprobs(trainer: Any, sampling: AdaptiveSampling) -> bool:
    """Return whether what draws the responses reports the log-probability of each token."""
    return takes_own_engine(trainer, sampling) or trainer.use_vllm


def beyond_own_engine(trainer: Any) -> list[str]:
    """Name TRL's settings that rollwise's engine, which only samples at a temperature, lacks."""
    args = trainer.args
    asked = {
        "use_vllm": args.use_vllm,
        "continuous batching": args.use_transformers_continuous_batching,
        "a sharded model": trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled,
        "top_p": args.top_p != 1.0,
        "top_k": args.top_k not in (0, None),
        "min_p": bool(args.min_p),
        "repetition_penalty": args.repetition_penalty != 1.0,
        "cache_implementation": args.cache_implementation is not None,
        "generation_kwargs": bool(args.generation_kwargs),
    }
    return [name for name, is_asked in asked.items() if is_asked]


@dataclass(frozen=True)
class Total:
    """Makes one reward of those of several functions.

    Args:
        names: Of the functions.
        weights: Theirs, in the weighted sum.
        by_belief: Whether it is compared with a belief, and so must be 0 or 1.
        correctness: The function that alone decides; None for the weighted sum.
    """

    names: Sequence[str]
    weights: Sequence[float]
    by_belief: bool
    correctness: str | None = None

    def __post_init__(self) -> None:
        if self.correctness is None:
            return
        if not self.by_belief:
            raise ValueError(
                "correctness is for single responses, which are compared with a belief; groups "
                "learn from the weighted sum of rewards"
            )
        if self.correctness not in self.names:
            raise ValueError(
                "correctness must be the name of a reward function, "
                f"{' or '.join(map(repr, self.names))}; got {self.correctness!r}"
            )

    def of(self, rewards: Sequence[float]) -> float:
        """Return a response's reward, without functions that abstain (NaN)."""
        if self.correctness is not None:
            total = rewards[self.names.index(self.correctness)]
        else:
            total = float(np.nansum(np.array(rewards) * np.array(self.weights)))
        if not self.by_belief or total in (0.0, 1.0):
            return total
        by_name = ", ".join(f"{n} {r:g}" for n, r in zip(self.names, rewards, strict=True))
        raise ValueError(
            f"single responses need rewards of 0 and 1, and a response got {total:g} ({by_name}): "
            "name the function that says whether a response is correct, "
            f"correctness={self.names[0]!r}, or learn from any rewards by method='grpo'"
        )
