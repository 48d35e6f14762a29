"""The methods of `rollwise train` by name, as `GRPOConfig` and `AdaptiveSampling`."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from trl import GRPOConfig

from rollwise.config import TrainConfig, make_config
from rollwise.config.base import merge
from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError
from rollwise.integrations.trl.options import AdaptiveSampling
from rollwise.prompts import PromptSampler
from rollwise.sampling.draws import Key
from rollwise.step import StepRecipe

ANY_MODEL = {"model": {"path": "yours"}}
"""A model that is not built in; those have a learning rate of their own."""

FOR_EVALUATION = 2
"""TRL's smallest `num_generations`, where a group has one member; evaluation draws as many."""


def grpo_config(method: str = "single", *, kind: type = GRPOConfig, **given: Any) -> Any:
    """Return TRL's configuration for a method, with the settings it was tested with.

    That is the number of prompts of a generation step, how many responses make an update, the loss
    and its clipping, the learning rate and its warm-up. The numbers of a batch fit the number of
    processes and `per_device_train_batch_size`.

    Args:
        method: A method's name (docs/settings.md#methods).
        kind: The configuration's class: also `AsyncGRPOConfig`.
        **given: Any of its settings; they take precedence.

    Raises:
        ConfigError: There is no such method.
        ValueError: An update's responses cannot be split as `given` asks.
    """
    return kind(**{**_trl_settings(method, kind, given), **given})


def method_sampling(
    method: str = "single", num_generations: int | None = None, **changed: Any
) -> AdaptiveSampling:
    """Return how a method samples prompts and responses.

    Args:
        method: A method's name.
        num_generations: Responses to each prompt of a method with one number for all, unless that
            is 1; by default as many as it was tested with.
        **changed: Arguments of `AdaptiveSampling` to change.
    """
    settings = method_settings(method, None, num_generations)
    recipe, advantage = step_recipe(settings), settings.advantage
    shared = [f.name for f in fields(AdaptiveSampling) if f.init and hasattr(recipe, f.name)]
    given = {name: getattr(recipe, name) for name in shared} | {
        **{name: value for name, value in advantage.own().items() if name in shared},
        "method": method,
        "objective": getattr(advantage, advantage.tag),
        "prompt_sampler": MethodSampler(method),
        "group_size": 1 if recipe.group_size == 1 else None,
    }
    return AdaptiveSampling(**{**given, **changed})


def single_responses(**changed: Any) -> AdaptiveSampling:
    """Return `method_sampling("single")`, the default: single responses compared with a belief."""
    return method_sampling("single", **changed)


@dataclass(frozen=True)
class MethodSampler:
    """Makes the prompt sampler of a method, with its belief."""

    method: str

    def __call__(self, keys: Sequence[Key], batch_size: int, seed: int) -> PromptSampler:
        """Make the sampler of these prompts."""
        settings = method_settings(
            self.method, {"prompts": {"batch_size": batch_size}, "seed": seed}
        )
        return make_sampler(settings, keys, {})


def method_settings(
    method: str, changed: Mapping[str, Any] | None = None, num_generations: int | None = None
) -> TrainConfig:
    """Return a method's settings for a model that is not built in.

    `changed` takes precedence, and then `num_generations`, if a method has a fixed number above 1.
    """
    given = merge({"method": method, **ANY_MODEL}, changed or {})
    settings = make_config(given)
    if num_generations and settings.group.size > 1 and settings.exit.type == "fixed_count":
        settings = make_config(merge({"exit": {"samples": num_generations}}, given))
    if settings.learner.max_divergence:
        raise ConfigError(
            f"the method {method!r} leaves out responses far from the policy "
            "(`learner.max_divergence`), which TRL does not; use `rollwise train`"
        )
    return settings


def announcement(trainer: Any, sampling: AdaptiveSampling, recipe: StepRecipe) -> str:
    """Describe in a line what a trainer does, and what differs from what was tested."""
    args, size, name = trainer.args, recipe.group_size, sampling.method
    prompts = args.generation_batch_size // size
    each = "1 response each" if size == 1 else f"groups of {size}"
    drawn = f"{prompts} prompts a generation step, {each}"
    parts = [drawn, _length(args, len(trainer.train_dataset), prompts, size)]
    if name is None:
        return announced("your own sampling", *parts)
    tested = method_sampling(name, args.num_generations)
    changed = [
        f"{part.name} {given!r}"
        for part in fields(AdaptiveSampling)
        if (given := getattr(sampling, part.name)) != getattr(tested, part.name)
    ]
    return announced(name, *parts, differences(args, name, changed))


def announced(*parts: str) -> str:
    """Return the line that a trainer prints at its start."""
    return "rollwise: " + "; ".join(parts)


def differences(args: Any, method: str, changed: Sequence[str] = ()) -> str:
    """Name the settings of TRL's that are not those that a method was tested with."""
    wanted = _trl_settings(method, type(args), {}, args.world_size)
    others = ["learning_rate"]  # the model decides
    if method_settings(method).group.size == 1:
        others += ["num_generations", "scale_rewards"]  # of evaluation alone
    for name in others:
        wanted.pop(name, None)
    found = {name: getattr(args, name) for name in wanted}
    for values in (wanted, found):  # what matters of how a batch is split
        at_a_time = values.pop("per_device_train_batch_size") * args.world_size
        values["responses of an update"] = at_a_time * values.pop("gradient_accumulation_steps")
        if "steps_per_generation" in values:
            values["generation_batch_size"] = at_a_time * values.pop("steps_per_generation")
    pairs = {name: (getattr(found[name], "value", found[name]), v) for name, v in wanted.items()}
    said = [f"{name} {given} ({v})" for name, (given, v) in pairs.items() if given != v]
    said += changed
    return f"other than tested: {', '.join(said)}" if said else "all as tested"


def _length(args: Any, problems: int, prompts: int, size: int) -> str:
    """Return how many updates training has, and how many TRL's own trainer would make."""
    if args.max_steps > 0:
        return f"{args.max_steps} updates"
    a_step = args.num_iterations * args.steps_per_generation / args.gradient_accumulation_steps
    groups = {
        size: prompts,
        args.num_generations: args.generation_batch_size // args.num_generations,
    }
    updates = {
        of: math.ceil(args.num_train_epochs * max(1, problems // each) * a_step)
        for of, each in groups.items()
    }
    said = f"{args.num_train_epochs:g} epochs of {problems} prompts, {updates.pop(size)} updates"
    theirs = [f" (with GRPOTrainer and num_generations={n}: {u})" for n, u in updates.items()]
    return said + "".join(theirs)


def _trl_settings(
    method: str, kind: type, given: Mapping[str, Any], processes: int | None = None
) -> dict[str, Any]:
    """Return what a method sets of TRL's configuration."""
    settings = method_settings(method)
    learner, size = settings.learner, settings.group.size
    processes = processes or int(os.environ.get("WORLD_SIZE", 1))
    rows = settings.prompts.batch_size * size
    share = rows // learner.mini_batches // processes  # responses of an update in each process
    at_a_time = given.get("per_device_train_batch_size", math.gcd(share, 4))
    accumulated = given.get("gradient_accumulation_steps", share // max(1, at_a_time))
    if not accumulated or share % at_a_time:
        raise ValueError(
            f"per_device_train_batch_size must divide {share}, the responses of an update in each "
            f"of {processes} processes (method {method!r}); got {at_a_time}"
        )
    values = {
        "per_device_train_batch_size": at_a_time,
        "gradient_accumulation_steps": accumulated,
        "steps_per_generation": accumulated * learner.mini_batches,
        "num_iterations": learner.passes,
        "num_generations": max(size, FOR_EVALUATION),
        "scale_rewards": "group" if settings.advantage.own().get("scale_by_std") else "none",
        "loss_type": "grpo" if learner.average == "responses" else "dapo",
        "learning_rate": learner.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": learner.warmup_updates,
        "weight_decay": learner.weight_decay,
        "max_grad_norm": learner.max_grad_norm,
        "epsilon": learner.clip_low,
        "epsilon_high": learner.clip_high,
        "delta": learner.dual_clip,
        "temperature": settings.engine.temperature,
        "token_budget": 0,  # an update has a number of responses, not of tokens
    }
    if "generation_batch_size" in given:
        del values["steps_per_generation"]
    known = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in known}
