"""From rollwise's settings to verl's overrides."""

import json
import math
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from rollwise.config import BUILT_IN_NAMES, TrainConfig
from rollwise.integrations.verl.settings import (
    MANAGER,
    MODE,
    NAME,
    OLDEST,
    ROLLOUT,
    STRATEGY,
    TRAINERS,
    buffer_of,
)
from rollwise.models.loading import model_path
from rollwise.records import flatten

PLAIN_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The built-in model was trained on bare questions."""

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"

SAME = {
    "data.train_batch_size": "prompts.batch_size",
    "data.max_prompt_length": "data.max_prompt_tokens",
    "data.max_response_length": "engine.max_new_tokens",
    f"{ACTOR}.optim.lr": "learner.learning_rate",
    f"{ACTOR}.optim.weight_decay": "learner.weight_decay",
    f"{ACTOR}.grad_clip": "learner.max_grad_norm",
    f"{ACTOR}.clip_ratio_low": "learner.clip_low",
    f"{ACTOR}.clip_ratio_high": "learner.clip_high",
    f"{ACTOR}.clip_ratio_c": "learner.dual_clip",
    f"{ACTOR}.entropy_coeff": "learner.entropy_coefficient",
    f"{ROLLOUT}.n": "group.size",
    f"{ROLLOUT}.temperature": "engine.temperature",
    f"{ROLLOUT}.val_kwargs.n": "evaluation.samples",
    f"{ROLLOUT}.val_kwargs.temperature": "engine.temperature",
    "trainer.total_training_steps": "steps",
    "trainer.max_actor_ckpt_to_keep": "checkpoint.keep",
}
"""verl's settings -> our settings whose values they take."""

ALWAYS = {
    "data.filter_overlong_prompts": True,
    "data.return_raw_chat": True,
    "data.dataloader_num_workers": 0,
    f"{ACTOR}.strategy": "fsdp2",
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.use_kl_loss": False,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.tensor_model_parallel_size": 1,
    f"{ROLLOUT}.calculate_log_probs": True,
    f"{ROLLOUT}.val_kwargs.do_sample": True,
    f"+{ROLLOUT}.agent.agent_loop_manager_class": MANAGER,
    "algorithm.adv_estimator": NAME,
    "critic.enable": False,
    "reward.reward_manager.source": "importlib",
    "reward.reward_manager.name": "GraderRewardManager",
    "reward.reward_manager.module.path": "pkg://rollwise.integrations.verl.reward",
    "trainer.project_name": NAME,
}


def overrides(
    config: TrainConfig,
    given: Mapping[str, Any],
    verl: Mapping[str, Any],
    folder: Path,
    data: tuple[Path, Path],
) -> list[str]:
    """Write verl's configuration as Hydra overrides, one for each setting.

    `given` are the settings that the user gave; verl's processes fill in the defaults, as in
    `config`. Those in `verl`, verl's own, take precedence. `data`: the training and held-out file.
    """
    own, learner = flatten(verl, "."), config.learner
    by_token = learner.average == "tokens"
    longest = config.data.max_prompt_tokens + config.engine.max_new_tokens
    at_a_time = learner.tokens_at_a_time(on_gpu=True)
    derived = {
        **{name: attrgetter(ours)(config) for name, ours in SAME.items()},
        f"{MODEL}.enable_gradient_checkpointing": config.model.gradient_checkpointing is not False,
        **ALWAYS,
        **_model(config),
        **_mode(config, own.pop(MODE, "sync")),
        f"{ACTOR}.ppo_epochs": learner.passes,
        f"{ACTOR}.ppo_mini_batch_size": config.prompts.batch_size // learner.mini_batches,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(at_a_time, longest),
        f"{ACTOR}.loss_agg_mode": "token-mean" if by_token else "seq-mean-token-mean",
        "algorithm.rollout_correction.bypass_mode": learner.old_logprobs == "engine",
        "reward.num_workers": config.grading.workers or 8,
        # An epoch has at least one step, so that the number of steps ends the run.
        "trainer.total_epochs": config.steps + 1,
        # `every = 0` means only at the end; to verl, 0 would mean never.
        "trainer.save_freq": config.checkpoint.every or config.steps,
        "trainer.test_freq": config.evaluation.every or config.steps,
        "trainer.logger": ["console", *config.records.trackers],
        "data.train_files": str(data[0]),
        "data.val_files": str(data[1]),
        "trainer.experiment_name": folder.name,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        f"+{NAME}.output": str(folder),
        "hydra.run.dir": str(folder / "hydra"),
    }
    chosen = [(key, value) for key, value in derived.items() if key.lstrip("+") not in own]
    chosen += [(f"+{NAME}.settings.{key}", value) for key, value in flatten(given, ".").items()]
    chosen += [(f"++{key}", value) for key, value in own.items()]
    return [f"{key}={_text(value)}" for key, value in chosen]


def _model(config: TrainConfig) -> dict[str, Any]:
    model, modules = config.model, config.model.lora_modules
    chosen: dict[str, Any] = {f"{MODEL}.path": model_path(model.path)}
    if model.path in BUILT_IN_NAMES:
        chosen[f"{MODEL}.custom_chat_template"] = PLAIN_TEMPLATE
    if model.lora_rank:
        chosen[f"{MODEL}.lora_rank"] = model.lora_rank
        chosen[f"{MODEL}.lora_alpha"] = model.lora_alpha
        chosen[f"{MODEL}.target_modules"] = modules.split(",") if "," in modules else modules
    return chosen


def _mode(config: TrainConfig, mode: str) -> dict[str, Any]:
    """Which of verl's trainers, how it warms up, and how old its responses may be."""
    learner = config.learner
    # verl raises the rate at each call of its worker: once a step, or with separate engines once an
    # update.
    updates = 1 if mode == "separate_async" else learner.mini_batches * learner.passes
    chosen: dict[str, Any] = {
        MODE: TRAINERS[mode],
        f"{ACTOR}.optim.lr_warmup_steps": math.ceil(learner.warmup_updates / updates),
        **buffer_of(mode),
    }
    if mode == "sync":
        return chosen
    chosen |= {OLDEST: 5, STRATEGY: "wait"}
    if learner.old_logprobs == "learner":
        chosen |= {
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": learner.importance_cap,
        }
    if mode == "separate_async":
        chosen |= {
            "trainer.v1.separate_async.parameter_sync_step": learner.mini_batches,
            f"{ROLLOUT}.checkpoint_engine.backend": "nccl",
        }
    return chosen


def _text(value: Any) -> str:
    """Write a value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(part) for part in value) + "]"
    if isinstance(value, str):
        escaped = value.replace('\\"', '\\\\"').replace('"', '\\"').replace("${", "\\${")
        trailing = len(escaped) - len(escaped.rstrip("\\"))  # they would escape the quote
        escaped += "\\" * trailing
        return f'"{escaped}"'
    return json.dumps(value)
