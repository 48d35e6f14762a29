"""rollwise's settings for slime, and slime's arguments that they exclude."""

from pathlib import Path
from typing import Any

from rollwise.config import TrainConfig, make_config, read_toml
from rollwise.config.base import Rule, refusals
from rollwise.errors import ConfigError
from rollwise.records import flatten

PACKAGE = "rollwise.integrations.slime"

SECTIONS = ("method", "seed", "plugin_folder", "prompts", "belief", "advantage", "step")
THRESHOLD = "grading.positive_threshold"

RULES: tuple[Rule, ...] = (
    ("custom_reward_post_process_path", (f"{PACKAGE}.post_process_rewards",), "it learns"),
    ("custom_convert_samples_to_train_data_path", (None,), "it would bypass the reward hook"),
    ("custom_advantage_function_path", (None,), "advantages come from the reward hook"),
    ("advantage_estimator", ("grpo", "gspo", "cispo"), "others take no advantages from the hook"),
    ("normalize_advantages", (False,), "`step.normalize_advantages` does that"),
    (
        "dynamic_sampling_filter_path",
        (None,),
        "the sampler would not learn what it leaves out; without signal a group has advantage 0",
    ),
    ("rollout_global_dataset", (True,), "without it slime neither saves nor loads"),
    ("load_debug_rollout_data", (None,), "another sampler chose the prompts of recorded rollouts"),
)
"""What slime's arguments must be."""


def read_settings(args: Any) -> TrainConfig:
    """Read the file that `rollwise_settings` names, and complete it by slime's arguments.

    Without a `method` in it: `single` if slime draws one response per prompt
    (`--n-samples-per-prompt`), else `grpo`.
    """
    path = getattr(args, "rollwise_settings", None)
    given = read_toml(Path(path)) if path else {}
    names = flatten(given, ".")
    foreign = [n for n in names if n.split(".")[0] not in SECTIONS and n != THRESHOLD]
    if foreign:
        raise ConfigError(
            f"{path}: slime's own arguments decide {', '.join(f'`{name}`' for name in foreign)}; "
            f"the file may have {', '.join(SECTIONS)} and {THRESHOLD}"
        )
    samples = args.n_samples_per_prompt
    by_slime = {
        "method": "single" if samples == 1 else "grpo",
        "seed": args.rollout_seed,
        "prompts": {"batch_size": args.rollout_batch_size},
        "exit": {"type": "fixed_count", "samples": samples},
        "learner": {"average": "tokens" if args.calculate_per_token_loss else "responses"},
    }
    settings = make_config(by_slime, given)
    rules: list[Rule] = [
        *RULES,
        ("rollout_batch_size", (settings.prompts.batch_size,), "`prompts.batch_size` says so"),
    ]
    if getattr(settings.advantage, "scale_by_std", False):
        why = "`advantage.scale_by_std` divides by the standard deviation"
        rules.append(("grpo_std_normalization", (True,), why))
    if wrong := refusals(rules, lambda name: getattr(args, name, None)):
        raise ConfigError("\n".join(f"slime's {line}" for line in wrong))
    return settings
