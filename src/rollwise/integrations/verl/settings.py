"""rollwise's settings inside verl's configuration, and verl's settings that exclude them."""

import os
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

from packaging.specifiers import SpecifierSet

from rollwise.config import TrainConfig, make_config
from rollwise.errors import ConfigError

NAME = "rollwise"
"""Names our trainer, our advantages, our settings in verl's configuration, and our metrics."""

TESTED = ">=0.9,<0.10"
"""verl's versions."""

MANAGER = "rollwise.integrations.verl.agent_loop.SessionLoopManager"
BUFFER = ("pkg://rollwise.integrations.verl.replay_buffer", "PoolReplayBuffer")


METHOD = {"prompts": {"type": "uniform"}}
"""Reinforce-Ada where no method is given: verl has no place for the cap of single responses."""


def settings_of(config: Any) -> TrainConfig:
    """Read rollwise's settings out of verl's configuration (an OmegaConf `DictConfig`).

    Raises:
        ConfigError: There are none, or they are wrong.
    """
    from omegaconf import OmegaConf

    if config.get(NAME) is None:
        raise ConfigError(
            f"verl's configuration has no `{NAME}`: start verl by `rollwise verl`, or with the "
            "overrides that `rollwise verl --print` shows"
        )
    given = config[NAME].get("settings") or {}
    return make_config(METHOD, OmegaConf.to_container(given, resolve=True) if given else {})


def missing() -> str | None:
    """Say in a sentence why verl cannot run rollwise; None if it can."""
    try:
        found = version("verl")
    except PackageNotFoundError:
        return 'verl is not installed: pip install "rollwise[verl]"'
    if not SpecifierSet(TESTED).contains(found, prereleases=True):
        return f"verl {found} is installed, and rollwise is tested with verl{TESTED}"
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and NAME not in [name.strip() for name in policy.split(",")]:
        return f"VERL_USE_EXTERNAL_PLUGINS keeps rollwise out: let it name `{NAME}`, or unset it"
    plugins = [point for point in entry_points(group="verl.plugins") if point.name == NAME]
    if not plugins:
        return "verl cannot find rollwise's plug-in: reinstall rollwise, for its entry point"
    try:
        plugins[0].load()  # verl does so too, but is silent if it fails
    except ImportError as error:
        return f'rollwise\'s plug-in cannot be loaded ({error}): pip install "rollwise[verl]"'
    return None


def check(config: Any, settings: TrainConfig) -> None:
    """Check the settings against each other.

    Args:
        config: verl's whole configuration.
        settings: rollwise's.

    Raises:
        ConfigError: One line for each setting: what it must be, what it is, and why.
    """
    wrong = [*unsupported(settings), *_not_as_rollwise(config, settings), *_misaligned(config)]
    if wrong:
        raise ConfigError("\n".join(wrong))


def unsupported(settings: TrainConfig) -> list[str]:
    """Say which settings verl cannot follow."""
    trainer = "trainer ends by steps"
    workers, learner = "workers sample prompts separately", "learners pack responses into one row"
    refused: dict[str, tuple[Any, Any, tuple[Any, ...], str]] = {
        "backend.type": (settings.backend.type, "local", ("local",), workers),
        "group.unresolved": (
            settings.group.unresolved,
            "drop` or `keep",
            ("drop", "keep"),
            workers,
        ),
        "allocation.type": (settings.allocation.type, "none", ("none",), workers),
        "schedule.total_draws": (settings.schedule.total_draws, "unset", (None,), workers),
        "tokens": (settings.tokens, "unset", (None,), trainer),
        "seconds": (settings.seconds, "unset", (None,), trainer),
        "evaluation.every_tokens": (settings.evaluation.every_tokens, 0, (0,), trainer),
        "episode.type": (settings.episode.type, "none", ("none",), "agent loops play episodes"),
        "step.carry_over": (settings.step.carry_over, "false", (False,), workers),
        "step.tokens": (settings.step.tokens, "unset", (None,), workers),
        "step.normalize_advantages": (
            settings.step.normalize_advantages,
            "false",
            (False,),
            workers,
        ),
        "learner.response_cap": (settings.learner.response_cap, 0, (0,), learner),
    }
    return [
        f"`{key}` must be `{wanted}` in verl, whose {reason}; it is {given!r}"
        for key, (given, wanted, allowed, reason) in refused.items()
        if given not in allowed
    ]


def _not_as_rollwise(config: Any, settings: TrainConfig) -> list[str]:
    """Settings that verl and rollwise both have must be equal."""
    path, name = BUFFER
    rollout = "actor_rollout_ref.rollout"
    wanted = {
        "algorithm.adv_estimator": NAME,
        f"{rollout}.agent.agent_loop_manager_class": MANAGER,
        "trainer.v1.sampler.custom_sampler.path": path,
        "trainer.v1.sampler.custom_sampler.name": name,
        "data.train_batch_size": settings.prompts.batch_size,
        f"{rollout}.n": settings.group.size,
        f"{rollout}.temperature": settings.engine.temperature,
        f"{rollout}.response_length": settings.engine.max_new_tokens,
    }
    return [
        f"`{key}` must be {value!r}, as rollwise's settings have it; it is {_get(config, key)!r}"
        for key, value in wanted.items()
        if _get(config, key) != value
    ]


def _misaligned(config: Any) -> list[str]:
    """Settings by which the learner would see other responses or probabilities than were drawn."""
    rollout, size = "actor_rollout_ref.rollout", _get(config, "data.train_batch_size")
    colocated = _get(config, "reward.reward_model.enable")
    rules: list[tuple[str, tuple[Any, ...], str]] = [
        (f"{rollout}.top_p", (1,), "the learner's probabilities are of the whole distribution"),
        (f"{rollout}.top_k", (-1,), "the learner's probabilities are of the whole distribution"),
        (f"{rollout}.logprobs_mode", ("processed_logprobs",), "temperature is part of the policy"),
        (f"{rollout}.full_determinism", (False,), "it gives the responses to a prompt one name"),
        (f"{rollout}.over_sample_rate", (0,), "it favours responses that are finished first"),
        ("algorithm.use_kl_in_reward", (False,), "advantages come from the rewards as graded"),
        ("algorithm.filter_groups.enable", (None, False), "`group.unresolved` decides that"),
        ("trainer.v1.sampler.sync_refill_failed_groups", (None, False), "prompts are asked once"),
        ("data.gen_batch_size", (None, size), "a step's prompts are asked at once"),
        ("skip.rollout_tq.enable", (None, False), "recorded rollouts hold no pools"),
    ]
    if colocated:
        rules.append(
            (
                "reward.reward_model.enable_resource_pool",
                (True,),
                "a colocated reward model grades after sampling, which rewards have to steer",
            )
        )
    return [
        f"`{key}` must be {allowed[-1]!r}: {why}; it is {_get(config, key)!r}"
        for key, allowed, why in rules
        if _get(config, key) not in allowed
    ]


def _get(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.select(config, key)
