"""The defaults that depend on other settings."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollwise.config.base import kind_of, merge, setting
from rollwise.config.choices import CHOICES
from rollwise.config.data import ENVIRONMENT
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, TOOL_SUMS
from rollwise.grading import GRADERS, GraderSettings
from rollwise.sampling import Estimated

ENGINE = CHOICES["engine"].default
"""The built-in engine, which computes log-probabilities as the learner does."""

NO_LIMIT = 1_000_000
"""Steps of a run that another limit ends."""

METHOD = ("exit", "schedule", "allocation", "group", "advantage", "belief")
"""Sections that say how responses are sampled and compared; so does `prompts.type`."""

OF_THE_DATA = {"features"}
"""Settings of a belief that say what is known of the prompts, not how they are sampled."""

SINGLE_RESPONSES: dict[str, dict[str, Any]] = {
    "prompts": {"type": "posterior", "exploration": 0.5, "batch_size": 256},
    "belief": {"type": "logit_kalman"},
    "exit": {"type": "fixed_count", "samples": 1},
    "advantage": {"baseline": "belief"},
    "step": {"normalize_gradients": True},
    "learner": {
        "average": "responses",
        "mini_batches": 16,
        "warmup_updates": 40,
        "max_grad_norm": 0.03,
    },
}
"""The method where none is given (docs/belief.md)."""


def defaults_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of `rollwise train` that depend on other settings."""
    method: Mapping[str, Any] = {} if _names_a_method(given) else SINGLE_RESPONSES
    if method and kind_of(given, "engine") == ENGINE:
        method = merge(method, {"learner": {"old_logprobs": "engine"}})
    given = merge(method, given)
    by_belief = setting(given, "advantage", "baseline", "pool") == "belief"
    defaults = _of_the_task(given, _source(given))
    if any(given.get(limit) is not None for limit in ("tokens", "seconds")):
        defaults["steps"] = NO_LIMIT
    if setting(given, "evaluation", "every_tokens", 0):
        defaults["evaluation"] = {"every": 0}
    if setting(given, "data", "environment", ""):
        defaults["data"] = {"train": ENVIRONMENT}
    if defaults["model"]["path"] in BUILT_IN_NAMES:
        defaults["learner"] = {"learning_rate": 1.4e-4 if by_belief else 2e-4}
    backend = CHOICES["backend"].kinds.get(kind_of(given, "backend"))
    return merge(defaults, getattr(backend, "defaults", {}), _of_counts(given, by_belief), method)


def _names_a_method(given: Mapping[str, Any]) -> bool:
    """Say whether anything is given that does not fit single responses."""
    grading = _grading(given, _source(given))
    return (
        any(isinstance(own := given.get(s), Mapping) and {*own} - OF_THE_DATA for s in METHOD)
        or setting(given, "prompts", "type", None) is not None
        or not GRADERS.get(str(grading["type"]), GraderSettings).right_or_wrong  # as a belief needs
        or setting(given, "episode", "type", "none") != "none"  # whose rewards may be any numbers
    )


def _of_counts(given: Mapping[str, Any], by_belief: bool) -> dict[str, Any]:
    """Return the defaults that go with a belief as baseline, an allocation, or a fixed count."""
    linear = {"advantage": {"objective": "linear"}, "group": {"strategy": "all"}}
    defaults: dict[str, Any] = linear if by_belief else {}
    if (allocation := kind_of(given, "allocation")) != CHOICES["allocation"].default:
        most = setting(given, "allocation", "maximum", Estimated.maximum)
        defaults |= {
            "exit": {"type": "fixed_count", "samples": most},
            "schedule": {"type": "rounds", "size": most, "rounds": 1},
            "group": {"strategy": "all"},
        }
        kind = CHOICES["allocation"].kinds.get(allocation)
        if objective := getattr(kind, "objective", ""):
            defaults["advantage"] = {"objective": objective}
    elif samples := _fixed_count(given):
        defaults["schedule"] = {"type": "rounds", "size": samples, "rounds": 1}
        defaults["group"] = {"size": samples, "strategy": "all", "zero_variance": "keep"}
        if not by_belief:
            defaults["advantage"] = {"objective": "grpo", "scale_by_std": True}
    return defaults


def _fixed_count(given: Mapping[str, Any]) -> int | None:
    """Return how many responses each prompt gets by the exit rule; None if it depends on these."""
    rule, choice = kind_of(given, "exit"), CHOICES["exit"]
    if rule not in choice.kinds:
        return None
    try:
        section = choice.of(rule)(**{"type": rule, **(given.get("exit") or {})})
    except (TypeError, ValueError):  # a value that is refused
        return None
    count: int | None = section.kind(**section.own()).count
    return count


def drawing_defaults(given: Mapping[str, Any], sources: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of a command that trains nothing."""
    only = sources[0] if isinstance(sources, list) and len(sources) == 1 else ""
    defaults, kind = _of_the_task(given, only), kind_of(given, "engine")
    own = getattr(CHOICES["engine"].kinds.get(kind), "drawing_defaults", {})
    engine = {"type": kind, **own, **defaults.get("engine", {})}
    if longest := _longest_of_run(str(defaults["model"]["path"])):
        engine["max_new_tokens"] = longest
    return {**defaults, "engine": engine}


def _longest_of_run(model: str) -> int | None:
    """Return where the run that a model comes from cuts responses; None for other models."""
    path = Path(model).expanduser()
    for folder in (path, path.parent.parent):  # a run, or one of its checkpoints
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
            recorded = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            return int(recorded["config"]["engine"]["max_new_tokens"])
    return None


def _source(given: Mapping[str, Any]) -> str:
    """Return where training problems come from."""
    by_default = ENVIRONMENT if setting(given, "data", "environment", "") else BUILT_IN
    return str(setting(given, "data", "train", by_default))


def _of_the_task(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the defaults that depend on the model, and on where the problems come from."""
    own = TOOL_SUMS if source == TOOL_SUMS else BUILT_IN
    model: dict[str, Any] = {"path": setting(given, "model", "path", own)}
    defaults = {"model": model, "grading": _grading(given, source)}
    if model["path"] in BUILT_IN_NAMES:
        # So small a model gains little by a second thread, and loses much by one that has to wait.
        model["cpu_threads"] = 1
        defaults["engine"] = {"max_new_tokens": 48, "batch_size": 512}
    if source == TOOL_SUMS:
        defaults["episode"] = {"type": "calculator"}
    return defaults


def _grading(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    named = setting(given, "data", "environment", "")
    graded = "environment" if named else "math"
    by_source = "exact" if source in BUILT_IN_NAMES else graded
    kind = setting(given, "grading", "type", by_source)
    return {"type": kind, "timeout": GRADERS.get(str(kind), GraderSettings).timeout}
