"""The defaults that depend on other settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from rollwise.config.base import setting
from rollwise.config.choices import CHOICES
from rollwise.config.data import ENVIRONMENT
from rollwise.config.model import BUILT_IN
from rollwise.grading import GRADERS, GraderSettings
from rollwise.sampling import Estimated, FixedCount

NO_LIMIT = 1_000_000
"""Steps of a run that ends by something else."""


def defaults_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of `rollwise train` that depend on backend, model, task and exit rule."""
    defaults: dict[str, Any] = {}
    if any(given.get(limit) is not None for limit in ("tokens", "seconds")):
        defaults["steps"] = NO_LIMIT
    if setting(given, "evaluation", "every_tokens", 0):
        defaults["evaluation"] = {"every": 0}
    if setting(given, "model", "path", BUILT_IN) == BUILT_IN:
        # So small a model gains little by a second thread, and loses much by one that has to wait.
        defaults["model"] = {"cpu_threads": 1}
        defaults["learner"] = {"learning_rate": 2e-4}
        defaults["engine"] = {"max_new_tokens": 48, "batch_size": 512}
    backend = setting(given, "backend", "type", CHOICES["backend"].default)
    wanted = getattr(CHOICES["backend"].registry.get(str(backend)), "defaults", {})
    for section, values in wanted.items():
        defaults[section] = {**defaults.get(section, {}), **values}
    source = BUILT_IN
    if setting(given, "data", "environment", ""):
        defaults["data"] = {"train": (source := ENVIRONMENT)}
    defaults["grading"] = grading_defaults(given, setting(given, "data", "train", source))
    for section, choice in CHOICES.items():
        kind = setting(given, section, choice.tag, choice.default)
        defaults.setdefault(section, {}).setdefault(choice.tag, kind)
    by_belief = setting(given, "advantage", "baseline", "pool") == "belief"
    if by_belief:
        defaults |= {"advantage": {"objective": "linear"}, "group": {"strategy": "all"}}
    allocation = defaults["allocation"]["type"]
    if allocation != "none":
        most = setting(given, "allocation", "maximum", Estimated.maximum)
        defaults["exit"] = {"type": "fixed_count", "samples": most}
        defaults["schedule"] = {"type": "rounds", "size": most, "rounds": 1}
        defaults["group"] = {"strategy": "all"}
        if allocation == "estimated":
            defaults["advantage"] = {"objective": "sqrt"}
    elif defaults["exit"]["type"] == "fixed_count":
        samples = setting(given, "exit", "samples", FixedCount.samples)
        defaults["schedule"] = {"type": "rounds", "size": samples, "rounds": 1}
        defaults["group"] = {"size": samples, "strategy": "all", "unresolved": "keep"}
        if not by_belief:
            defaults["advantage"] = {"objective": "grpo", "scale_by_std": True}
    if allocation == "none" and _asks_again(given):
        defaults["schedule"] = {"type": "streamed"}
    return defaults


def _asks_again(given: Mapping[str, Any]) -> bool:
    """Say whether a step asks for prompts as slots get free; values may come as text."""
    tokens = str(setting(given, "step", "tokens", None)).lower()
    carries = str(setting(given, "step", "carry_over", False)).lower()
    return tokens != "none" or carries in ("true", "1", "yes", "on")


def drawing_defaults(
    given: Mapping[str, Any], own_model: bool, sources: Sequence[str]
) -> dict[str, Any]:
    """Return the defaults of a command that trains nothing."""
    engine = {"type": setting(given, "engine", "type", CHOICES["engine"].default)}
    defaults: dict[str, Any] = {"engine": engine}
    if engine["type"] == "vllm":
        engine["gpu_memory_utilization"] = 0.9  # nothing is trained beside it
    if not own_model:
        defaults["model"] = {"cpu_threads": 1}
        engine |= {"max_new_tokens": 48, "batch_size": 512}
    only = sources[0] if len(sources) == 1 else ""
    return defaults | {"grading": grading_defaults(given, only)}


def grading_defaults(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the defaults of `grading`, which depend on where the problems are from."""
    named = setting(given, "data", "environment", "")
    by_source = "exact" if source == BUILT_IN else "environment" if named else "math"
    kind = setting(given, "grading", "type", by_source)
    return {"type": kind, "timeout": GRADERS.get(kind, GraderSettings).timeout}
