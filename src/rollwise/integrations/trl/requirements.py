"""Which of TRL's arguments and settings `AdaptiveGRPOTrainer` can be combined with."""

from collections.abc import Mapping
from typing import Any

from transformers import ProcessorMixin

from rollwise.integrations.trl.options import AdaptiveSampling
from rollwise.step import StepRecipe


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
    rows = arguments.get("train_dataset")
    if rows is not None and not hasattr(rows, "__len__"):
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
    """Say whether rollwise's engine draws, rather than TRL's own generation."""
    return sampling.engine != "trl" and not beyond_own_engine(trainer)


def reports_logprobs(trainer: Any, sampling: AdaptiveSampling) -> bool:
    """Say whether what draws the responses reports the log-probability of each token."""
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
