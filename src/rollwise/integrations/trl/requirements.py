"""Which of TRL's arguments and settings `AdaptiveGRPOTrainer` can be combined with."""

from collections.abc import Mapping
from typing import Any

from transformers import ProcessorMixin

from rollwise.integrations.trl.options import AdaptiveSampling
from rollwise.integrations.trl.tools import cannot_parse
from rollwise.step import StepRecipe


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Check the arguments of `GRPOTrainer`.

    Raises:
        ValueError: One cannot be combined with adaptive sampling; names it.
    """
    if arguments.get("rollout_func"):
        raise ValueError(
            "rollout_func does not go with AdaptiveGRPOTrainer, which draws the responses itself; "
            "for draws of several turns, use tools or environment_factory"
        )
    plays = arguments.get("tools") or arguments.get("environment_factory")
    if plays and (reason := cannot_parse()):
        raise ValueError(reason)
    if isinstance(arguments.get("processing_class"), ProcessorMixin):
        raise ValueError("processing_class must be a tokenizer: prompts with images are not taken")
    rows = arguments.get("train_dataset")
    if rows is None and arguments.get("environment_factory"):
        raise ValueError(
            "train_dataset must be given: the prompt sampler chooses among its rows, and each is "
            "what an environment is reset with"
        )
    if rows is not None and not hasattr(rows, "__len__"):
        raise ValueError(
            "train_dataset must be a data set whose rows have numbers, because the prompt sampler "
            f"chooses among them; got {type(rows).__name__}"
        )


def check_settings(trainer: Any, sampling: AdaptiveSampling, recipe: StepRecipe) -> None:
    """Check TRL's settings against how the prompts are to be sampled.

    Raises:
        ValueError: One cannot be combined with it; names the setting.
    """
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
    if trainer.tools:
        check_tools(trainer, sampling)
    if sampling.response_cap and (unbounded := beyond_response_cap(trainer)):
        raise ValueError(
            "response_cap reads the gradients between the layers of the model, which is not "
            f"possible with {', '.join(unbounded)}; set response_cap=0"
        )
    asked, schedule = beyond_own_engine(trainer), recipe.resolved_schedule
    if schedule.draws_ahead and not takes_own_engine(trainer, sampling):
        raise ValueError(
            f"{schedule} needs rollwise's engine, and TRL's own generation, which draws in rounds, "
            f"is set by {', '.join(asked) or 'engine'}; use Rounds"
        )
    if sampling.engine == "rollwise" and asked:
        raise ValueError(
            f"engine='rollwise' cannot do what TRL is set to: {', '.join(asked)}; use engine='auto'"
        )


def check_tools(trainer: Any, sampling: AdaptiveSampling) -> None:
    """Check what tools and environments need.

    Raises:
        ValueError: Something else is set; names it.
    """
    prompt = trainer.train_dataset[0].get("prompt")
    if isinstance(prompt, str):
        raise ValueError(
            "tools and environment_factory need prompts that are conversations, lists of messages, "
            f"which the chat template renders with the tools; got the text {prompt!r:.100}"
        )
    if trainer.accelerator.num_processes > 1 and not takes_own_engine(trainer, sampling):
        asked = ", ".join(beyond_own_engine(trainer)) or "engine='trl'"
        raise ValueError(
            "tools and environment_factory need rollwise's engine on several processes: TRL's "
            "generation runs in all of them at once, and episodes take different numbers of turns; "
            f"TRL's is set by {asked}"
        )


def takes_own_engine(trainer: Any, sampling: AdaptiveSampling) -> bool:
    """Say whether rollwise's engine draws, rather than TRL's own generation."""
    return sampling.engine != "trl" and not beyond_own_engine(trainer)


def beyond_own_engine(trainer: Any) -> list[str]:
    """Name TRL's settings that rollwise's engine, which only samples at a temperature, lacks."""
    args = trainer.args
    continuous = ("use_transformers_continuous_batching", "use_transformers_paged")
    asked = {
        "use_vllm": args.use_vllm,
        "continuous batching": any(getattr(args, name, False) for name in continuous),
        "a sharded model": is_sharded(trainer),
        "top_p": args.top_p != 1.0,
        "top_k": args.top_k not in (0, None),
        "min_p": bool(args.min_p),
        "repetition_penalty": args.repetition_penalty != 1.0,
        "cache_implementation": args.cache_implementation is not None,
        "generation_kwargs": bool(args.generation_kwargs),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def beyond_response_cap(trainer: Any) -> list[str]:
    """Name TRL's settings under which gradients between layers are hidden, or scaled."""
    args = trainer.args
    asked = {
        "fp16": args.fp16,
        "torch_compile": args.torch_compile,
        "a sharded model": is_sharded(trainer),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def is_sharded(trainer: Any) -> bool:
    """Say whether the model is split over devices."""
    return bool(trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled)
