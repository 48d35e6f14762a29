"""rollwise's settings inside verl's configuration, and verl's settings that exclude them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from rollwise.config import TrainConfig, make_config
from rollwise.config.base import Rule, merge, refusals
from rollwise.errors import ConfigError
from rollwise.records import flatten

NAME = "rollwise"
"""Names our trainer, our advantages, our settings in verl's configuration, and our metrics."""

MANAGER = "rollwise.integrations.verl.agent_loop.SessionLoopManager"
SAMPLER = "trainer.v1.sampler.custom_sampler"
ROLLOUT = "actor_rollout_ref.rollout"

MODE = "trainer.v1.trainer_mode"
STRATEGY = "trainer.v1.sampler.max_off_policy_strategy"

OLDEST = "trainer.v1.sampler.max_off_policy_threshold"
"""How old responses may be: one more than the number of updates by which the weights that drew a
response's first token may lag behind."""

LAST_TURN = f"{NAME}_last_turn"
"""The key, in a row's `extra_fields`, of where the model's last turn begins and ends."""

TRAINERS = {"sync": NAME} | {m: f"{NAME}_{m}" for m in ("colocate_async", "separate_async")}
"""verl's trainers -> ours."""

_BY_STEPS = "verl's trainer ends by steps"
_SEPARATELY = "verl's workers sample prompts separately"

RULES: tuple[Rule, ...] = (
    ("backend.type", ("local",), "verl trains the model"),
    ("group.zero_variance", ("drop", "keep"), _SEPARATELY),
    ("allocation.type", ("none",), _SEPARATELY),
    ("tokens", (None,), _BY_STEPS),
    ("seconds", (None,), _BY_STEPS),
    ("evaluation.every_tokens", (0,), _BY_STEPS),
    ("episode.type", ("none",), "verl's agent loops play episodes"),
    ("learner.max_divergence", (0,), "verl's loss has no such bound"),
)
"""What our settings must be."""


def buffer_of(mode: str) -> dict[str, str]:
    """Return verl's settings that name the replay buffer for a trainer of verl's."""
    return {
        f"{SAMPLER}.path": "pkg://rollwise.integrations.verl.replay_buffer",
        f"{SAMPLER}.name": "PoolReplayBuffer" if mode == "sync" else "AsyncPoolReplayBuffer",
    }


def train_config(*layers: Mapping[str, Any]) -> TrainConfig:
    """Do what `make_config` does, with another default for `learner.old_logprobs`.

    verl's engines do not compute exactly as its learners do.
    """
    return make_config({"learner": {"old_logprobs": "learner"}}, *layers)


def read_settings(
    layers: Sequence[Mapping[str, Any]],
) -> tuple[TrainConfig, dict[str, Any], dict[str, Any]]:
    """Read settings, where later layers win.

    Returns ours with all defaults, those of ours that were given, and verl's own, in dotted names.
    """
    given: dict[str, Any] = {}
    verl: dict[str, Any] = {}
    for layer in layers:
        own = layer.get("verl", {})
        if not isinstance(own, Mapping):
            raise ConfigError(f"`verl` must be a table of verl's own settings; it is {own!r}")
        verl |= flatten(own, ".")
        given = merge(given, {key: value for key, value in layer.items() if key != "verl"})
    config = train_config(given)
    if wrong := unsupported(config, verl.get(MODE, "sync")):
        raise ConfigError("\n".join(wrong))
    return config, given, verl


def settings_of(config: Any) -> TrainConfig:
    """Read rollwise's settings out of verl's configuration (an OmegaConf `DictConfig`)."""
    from omegaconf import OmegaConf

    given = config[NAME].get("settings")
    return train_config(OmegaConf.to_container(given, resolve=True) if given else {})


def check(config: Any, settings: TrainConfig, mode: str = "sync") -> None:
    """Check verl's whole configuration and our settings against each other.

    A ConfigError has a line for each setting: what it must be, what it is, and why.
    """
    from omegaconf import OmegaConf

    get = functools.partial(OmegaConf.select, config)
    wrong = unsupported(settings, mode) + refusals(_rules_for_verl(get, settings, mode), get)
    if mode != "sync":
        wrong += _too_old(get, mode)
    if wrong:
        raise ConfigError("\n".join(wrong))


def unsupported(settings: TrainConfig, mode: str = "sync") -> list[str]:
    """Return which settings a trainer of verl's, given by verl's name, cannot follow."""
    if not isinstance(mode, str) or mode not in TRAINERS:
        return [f"`{MODE}` must be one of {sorted(TRAINERS)}; it is {mode!r}"]
    wrong = refusals(RULES, lambda name: attrgetter(name)(settings))
    learner, size = settings.learner, settings.prompts.batch_size
    if mode != "sync" and learner.old_logprobs == "learner" and not learner.importance_cap:
        wrong.append(
            "`learner.importance_cap` must be above 0, or `learner.old_logprobs` be `engine`, "
            f"under verl's `{mode}`, whose responses are drawn by older weights than those that "
            "learn from them; it is 0"
        )
    if size % learner.mini_batches:
        wrong.append(
            "`prompts.batch_size` must be a multiple of `learner.mini_batches`, because verl's "
            f"mini-batches are of whole prompts; they are {size} and {learner.mini_batches}"
        )
    return wrong


def check_steps(settings: TrainConfig, steps: int, problems: int) -> None:
    """Raise a ConfigError if the visits of so many problems end before verl's steps do."""
    visits, size = settings.prompts.visits, settings.prompts.batch_size
    if visits and steps > (most := visits * problems // size):
        raise ConfigError(
            f"`steps` must be at most {most}: with `prompts.visits` of {visits} there are "
            f"no more prompts then ({size} of {problems} a step); it is {steps}"
        )


def _rules_for_verl(get: Callable[[str], Any], settings: TrainConfig, mode: str) -> list[Rule]:
    """Return which values of verl's settings go with ours, and with what is drawn and graded."""
    size = settings.prompts.batch_size
    same = {
        "algorithm.adv_estimator": NAME,
        f"{ROLLOUT}.agent.agent_loop_manager_class": MANAGER,
        **buffer_of(mode),
        "data.train_batch_size": size,
        f"{ROLLOUT}.n": settings.group.size,
        f"{ROLLOUT}.temperature": settings.engine.temperature,
        f"{ROLLOUT}.response_length": settings.engine.max_new_tokens,
    }
    distribution = "the learner's probabilities are of the whole distribution"
    rules: list[Rule] = [
        *((name, (value,), "as rollwise's settings have it") for name, value in same.items()),
        (f"{ROLLOUT}.top_p", (1,), distribution),
        (f"{ROLLOUT}.top_k", (-1,), distribution),
        (f"{ROLLOUT}.logprobs_mode", ("processed_logprobs",), "temperature is part of the policy"),
        (f"{ROLLOUT}.full_determinism", (False,), "it gives all responses to a prompt one name"),
        (f"{ROLLOUT}.over_sample_rate", (0,), "it favours responses that are finished first"),
        ("algorithm.use_kl_in_reward", (False,), "advantages come from the rewards as graded"),
        ("algorithm.filter_groups.enable", (None, False), "`group.zero_variance` decides that"),
        ("data.gen_batch_size", (None, size), "a step's prompts are asked at once"),
    ]
    if mode != "sync":
        rules.append((STRATEGY, ("wait",), "requested prompts must be waited for"))
    if settings.step.normalize_gradients:
        reason = "`step.normalize_gradients` estimates gradients from them"
        rules.append((f"{ROLLOUT}.calculate_log_probs", (True,), reason))
    if get("reward.reward_model.enable"):
        reason = "a colocated reward model grades after sampling, which rewards have to steer"
        rules.append(("reward.reward_model.enable_resource_pool", (True,), reason))
    return rules


def _too_old(get: Callable[[str], Any], mode: str) -> list[str]:
    """Return the settings of verl's that make responses too old, or not correct for their age."""
    oldest, warm_up = get(OLDEST) or 0, f"trainer.v1.{mode}.num_warmup_batches"
    correction, ahead, wrong = "algorithm.rollout_correction", get(warm_up) or 0, list[str]()
    if oldest < 2:
        wrong.append(f"`{OLDEST}` must be at least 2, for the updates of one step; it is {oldest}")
    if ahead >= oldest:
        reason = "prompts requested so far ahead would be too old"
        wrong.append(f"`{warm_up}` must be below `{OLDEST}`, {oldest}: {reason}; it is {ahead}")
    if not (get(f"{correction}.bypass_mode") or get(f"{correction}.rollout_is")):
        wrong.append(
            f"`{correction}.rollout_is` must be `token` or `sequence`, or `bypass_mode` be true: "
            "responses are drawn by older weights than those that learn from them"
        )
    return wrong
