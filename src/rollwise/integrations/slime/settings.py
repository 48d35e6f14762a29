"""rollwise's settings for slime, and slime's arguments that they exclude."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rollwise.config import TrainConfig, make_config, read_toml
from rollwise.config.base import merge
from rollwise.config.defaults import SINGLE_RESPONSES
from rollwise.errors import ConfigError
from rollwise.records import flatten

ARGUMENT, VARIABLE = "rollwise_settings", "ROLLWISE_SETTINGS"
"""Where the path of the settings file stands: in slime's arguments, or in the environment."""

PACKAGE = "rollwise.integrations.slime"

ESTIMATORS = ("grpo", "gspo", "cispo")
"""slime's estimators that take what the reward hook returns for the advantage of every token."""

SECTIONS = ("seed", "plugin_folder", "prompts", "belief", "advantage", "step")
THRESHOLD = "grading.positive_threshold"


def read_settings(args: Any) -> TrainConfig:
    """Read the settings file, and complete it by slime's arguments.

    Without a file: single responses by belief where slime draws one response to a prompt
    (`--n-samples-per-prompt`), else GRPO's groups.

    Args:
        args: slime's arguments, parsed.

    Raises:
        ConfigError: One line for each setting or argument: what it must be, and what it is.
    """
    path = getattr(args, ARGUMENT, None) or os.environ.get(VARIABLE)
    given = read_toml(Path(path)) if path else {}
    foreign = [name for name in flatten(given, ".") if not _is_taken(name)]
    if foreign:
        raise ConfigError(
            f"{path}: slime's own arguments decide {', '.join(f'`{name}`' for name in foreign)}; "
            f"the file may have {', '.join(SECTIONS)} and {THRESHOLD}"
        )
    samples = args.n_samples_per_prompt
    by_slime = {
        "seed": args.rollout_seed,
        "prompts": {"batch_size": args.rollout_batch_size},
        "exit": {"type": "fixed_count", "samples": samples},
        "learner": {"average": "tokens" if args.calculate_per_token_loss else "responses"},
    }
    settings = make_config(merge(SINGLE_RESPONSES if samples == 1 else {}, by_slime), given)
    if wrong := list(_wrong(args, settings)):
        raise ConfigError("\n".join(wrong))
    return settings


def _is_taken(name: str) -> bool:
    return name.split(".")[0] in SECTIONS or name == THRESHOLD


def _wrong(args: Any, settings: TrainConfig) -> Iterable[str]:
    """Say of each argument that does not fit what it must be."""
    wanted: list[tuple[str, tuple[Any, ...], str]] = [
        ("custom_reward_post_process_path", (f"{PACKAGE}.post_process_rewards",), "it learns"),
        ("custom_convert_samples_to_train_data_path", (None,), "it would bypass the reward hook"),
        ("custom_advantage_function_path", (None,), "advantages come from the reward hook"),
        ("advantage_estimator", ESTIMATORS, "others change what the reward hook returns"),
        ("normalize_advantages", (False,), "`step.normalize_advantages` does that"),
        ("rollout_global_dataset", (True,), "without it slime neither saves nor loads"),
        ("load_debug_rollout_data", (None,), "recorded rollouts were asked of another sampler"),
        ("rollout_batch_size", (settings.prompts.batch_size,), "`prompts.batch_size` says so"),
    ]
    if args.dynamic_sampling_filter_path is not None:
        wanted.append(
            (
                "rollout_all_samples_process_path",
                (f"{PACKAGE}.keep_all_samples",),
                "the sampler has to learn what --dynamic-sampling-filter-path leaves out",
            )
        )
    if settings.advantage.make().uses_priors:
        why = "a filter by outcome would bias a baseline by belief (`advantage.baseline`)"
        wanted.append(("dynamic_sampling_filter_path", (None,), why))
    if getattr(settings.advantage, "scale_by_std", False):
        why = "`advantage.scale_by_std` divides by the standard deviation"
        wanted.append(("grpo_std_normalization", (True,), why))
    for name, allowed, why in wanted:
        if (found := getattr(args, name, None)) not in allowed:
            one = " or ".join(map(repr, allowed))
            yield f"slime's `{name}` must be {one}, for {why}; it is {found!r}"
