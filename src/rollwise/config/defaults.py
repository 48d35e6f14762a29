"""The defaults that depend on other settings."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollwise.config.base import merge, setting
from rollwise.config.choices import CHOICES
from rollwise.config.data import ENVIRONMENT
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, TOOL_SUMS
from rollwise.grading import GRADERS, GraderSettings
from rollwise.sampling import Estimated

ENGINE = CHOICES["engine"].default
"""The built-in engine, which computes log-probabilities as the learner does."""

NO_LIMIT = 1_000_000
"""Steps of a run that ends by something else."""


CALCULATOR = {"type": "calculator"}
"""How `tool-sums` is played."""

METHOD = ("exit", "schedule", "allocation", "group", "advantage", "belief")
"""Sections that say how responses are sampled and compared; so does `prompts.type`."""

OF_THE_DATA = {"features", "history"}
"""Settings of a belief that say what is known of the prompts, not how they are sampled."""

SINGLE_RESPONSES: dict[str, dict[str, Any]] = {
    "prompts": {"type": "worth", "batch_size": 256},
    "exit": {"type": "fixed_count", "samples": 1},
    "advantage": {"baseline": "belief"},
    "step": {"response_cap": 1.0},
    "learner": {"average": "responses", "mini_batches": 8, "warmup_updates": 40},
}
"""The method where none is given (docs/belief.md)."""


def defaults_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of `rollwise train` that depend on other settings."""
    if not _names_a_method(given):
        method = SINGLE_RESPONSES
        if setting(given, "engine", "type", ENGINE) == ENGINE:
            method = merge(method, {"learner": {"old_logprobs": "engine"}})
        return merge(_defaults_of_a_method(merge(method, given)), method)
    return _defaults_of_a_method(given)


def _names_a_method(given: Mapping[str, Any]) -> bool:
    """Say whether anything is given that single responses do not fit."""
    source = ENVIRONMENT if setting(given, "data", "environment", "") else BUILT_IN
    grading = grading_defaults(given, setting(given, "data", "train", source))
    return (
        any(set(given.get(section) or ()) - OF_THE_DATA for section in METHOD)
        or setting(given, "prompts", "type", None) is not None
        or not GRADERS.get(str(grading["type"]), GraderSettings).right_or_wrong  # as a belief needs
        or setting(given, "episode", "type", "none") != "none"  # whose rewards may be any
    )


def _defaults_of_a_method(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that depend on backend, model, task and exit rule."""
    by_belief = setting(given, "advantage", "baseline", "pool") == "belief"
    defaults = _defaults_of_the_task(given, 1.4e-4 if by_belief else 2e-4)
    for section, choice in CHOICES.items():
        chosen = defaults.setdefault(section, {})
        chosen[choice.tag] = setting(
            given, section, choice.tag, chosen.get(choice.tag, choice.default)
        )
    if by_belief:
        defaults |= {"advantage": {"objective": "linear"}, "group": {"strategy": "all"}}
    allocation = defaults["allocation"]["type"]
    if allocation != CHOICES["allocation"].default:
        most = setting(given, "allocation", "maximum", Estimated.maximum)
        defaults["exit"] = {**SINGLE_RESPONSES["exit"], "samples": most}
        defaults["schedule"] = {"type": "rounds", "size": most, "rounds": 1}
        defaults["group"] = {"strategy": "all"}
        kind = CHOICES["allocation"].kinds.get(str(allocation))
        if objective := getattr(kind, "objective", ""):
            defaults["advantage"] = {"objective": objective}
    elif samples := _fixed_count(defaults["exit"]["type"], given):
        defaults["schedule"] = {"type": "rounds", "size": samples, "rounds": 1}
        defaults["group"] = {"size": samples, "strategy": "all", "zero_variance": "keep"}
        if not by_belief:
            defaults["advantage"] = {"objective": "grpo", "scale_by_std": True}
    return defaults


def _fixed_count(rule: str, given: Mapping[str, Any]) -> int | None:
    """Return how many responses each prompt gets by an exit rule; None if that depends on them."""
    choice = CHOICES["exit"]
    try:
        section = choice.variant(rule)(**{**(given.get("exit") or {}), choice.tag: rule})
        count: int | None = section.kind(**section.own()).count
    except (KeyError, TypeError, ValueError):  # a rule of the user's, or a value that is refused
        return None
    return count


def _defaults_of_the_task(given: Mapping[str, Any], learning_rate: float) -> dict[str, Any]:
    """Return the defaults that depend on backend, model and task."""
    defaults: dict[str, Any] = {}
    if any(given.get(limit) is not None for limit in ("tokens", "seconds")):
        defaults["steps"] = NO_LIMIT
    if setting(given, "evaluation", "every_tokens", 0):
        defaults["evaluation"] = {"every": 0}
    source = setting(given, "data", "train", BUILT_IN)
    own = TOOL_SUMS if source == TOOL_SUMS else BUILT_IN
    if (path := setting(given, "model", "path", own)) in BUILT_IN_NAMES:
        # So small a model gains little by a second thread, and loses much by one that has to wait.
        defaults["model"] = {"path": path, "cpu_threads": 1}
        defaults["learner"] = {"learning_rate": learning_rate}
        defaults["engine"] = {"max_new_tokens": 48, "batch_size": 512}
    if source == TOOL_SUMS:
        defaults["episode"] = dict(CALCULATOR)
    backend = setting(given, "backend", "type", CHOICES["backend"].default)
    wanted = getattr(CHOICES["backend"].kinds.get(str(backend)), "defaults", {})
    for section, values in wanted.items():
        defaults[section] = {**defaults.get(section, {}), **values}
    if setting(given, "data", "environment", ""):
        defaults["data"] = {"train": ENVIRONMENT}
        source = setting(given, "data", "train", ENVIRONMENT)
    return defaults | {"grading": grading_defaults(given, source)}


def drawing_defaults(given: Mapping[str, Any], sources: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of a command that trains nothing."""
    only = sources[0] if isinstance(sources, list) and len(sources) == 1 else ""
    model = setting(given, "model", "path", TOOL_SUMS if only == TOOL_SUMS else BUILT_IN)
    engine = {"type": setting(given, "engine", "type", ENGINE)}
    engine |= getattr(CHOICES["engine"].kinds.get(str(engine["type"])), "drawing_defaults", {})
    kind = setting(given, "episode", "type", CHOICES["episode"].default)
    defaults: dict[str, Any] = {
        "engine": engine,
        "model": {"path": model},
        "episode": dict(CALCULATOR) if only == TOOL_SUMS else {"type": kind},
    }
    if model in BUILT_IN_NAMES:
        defaults["model"] |= {"cpu_threads": 1}
        engine |= {"max_new_tokens": 48, "batch_size": 512}
    elif longest := _longest_of_run(str(model)):
        engine["max_new_tokens"] = longest
    return defaults | {"grading": grading_defaults(given, only)}


def _longest_of_run(model: str) -> int | None:
    """Return where responses are cut in the run that a model is of; None for other models."""
    path = Path(model).expanduser()
    for folder in (path, path.parent.parent):  # a run, or one of its checkpoints
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
            recorded = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            return int(recorded["config"]["engine"]["max_new_tokens"])
    return None


def grading_defaults(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the defaults of `grading`, which depend on where the problems are from."""
    named = setting(given, "data", "environment", "")
    graded = "environment" if named else "math"
    by_source = "exact" if source in BUILT_IN_NAMES else graded
    kind = setting(given, "grading", "type", by_source)
    return {"type": kind, "timeout": GRADERS.get(str(kind), GraderSettings).timeout}
