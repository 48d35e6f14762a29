"""The defaults that depend on other settings."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollwise.config.base import kind_of, merge, setting
from rollwise.config.choices import CHOICES
from rollwise.config.data import ENVIRONMENT
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, TOOL_SUMS, is_small
from rollwise.environments.procedural import PREFIX
from rollwise.grading import GRADERS, GraderSettings
from rollwise.methods import PUBLISHED, STUDY, method_of
from rollwise.sampling import Estimated

ENGINE = CHOICES["engine"].default
"""The built-in engine, which computes log-probabilities as the learner does."""

NO_LIMIT = 1_000_000
"""Steps of a run that another limit ends."""


def defaults_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of `rollwise train` that depend on other settings, by their values."""
    source = _source(given)
    task = _of_the_task(given, source)
    name = given.get("method", usual_method(merge(task, given)))
    method = method_of(name)
    defaults = {"method": name, "learner": {}}
    if any(given.get(limit) is not None for limit in ("tokens", "seconds")):
        defaults["steps"] = NO_LIMIT
    if setting(given, "evaluation", "every_tokens", 0):
        defaults["evaluation"] = {"every": 0}
    if setting(given, "data", "environment", ""):
        defaults["data"] = {"train": ENVIRONMENT}
    if kind_of(given, "engine") == ENGINE:
        defaults["learner"]["old_logprobs"] = "engine"
    if built_in := trained_from(str(task["model"]["path"])) in BUILT_IN_NAMES:
        defaults["learner"]["learning_rate"] = method.rate
    by_others = {} if built_in or not method.learns.startswith(STUDY) else {"learner": PUBLISHED}
    backend = CHOICES["backend"].kinds.get(kind_of(given, "backend"))
    counts = follows_from_counts(merge(method.settings, given))
    of_backend = getattr(backend, "defaults", {})
    return merge(task, defaults, of_backend, method.settings, by_others, counts)


def usual_method(given: Mapping[str, Any]) -> str:
    """Return the method where none is given: `single` where a belief can expect every reward."""
    grader = GRADERS.get(kind_of(given, "grading"), GraderSettings)
    may_be_any = not grader.right_or_wrong or kind_of(given, "episode") != "none"
    return "grpo" if may_be_any else "single"


def follows_from_counts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that go with an allocation, or with a fixed count."""
    if kind_of(given, "allocation") != "none":
        samples = setting(given, "allocation", "maximum", Estimated.maximum)
        rule = {"exit": {"type": "fixed_count", "samples": samples}}
        return {**rule, "schedule": {"type": "rounds", "size": samples, "rounds": 1}}
    if samples := _fixed_count(given):
        schedule = {"type": "rounds", "size": samples, "rounds": 1}
        return {"schedule": schedule, "group": {"size": samples}}
    return {}


def _fixed_count(given: Mapping[str, Any]) -> int | None:
    """Return how many responses each prompt gets by the exit rule; None if it depends on these."""
    rule, choice = kind_of(given, "exit"), CHOICES["exit"]
    with suppress(TypeError, ValueError):  # a value that is refused
        if rule in choice.kinds:
            section = choice.of(rule)(**{"type": rule, **given.get("exit", {})})
            count: int | None = section.make().count
            return count
    return None


def drawing_defaults(given: Mapping[str, Any], sources: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of a command that trains nothing."""
    only = sources[0] if isinstance(sources, list) and len(sources) == 1 else ""
    model = str(setting(given, "model", "path", BUILT_IN))
    defaults, kind = _of_the_task(given, only), kind_of(given, "engine")
    own = getattr(CHOICES["engine"].kinds.get(kind), "drawing_defaults", {})
    engine = {"type": kind, **own, **defaults.get("engine", {})}
    with suppress(ValueError, TypeError):  # of another release
        engine["max_new_tokens"] = int(_of_run(model, "engine", "max_new_tokens"))
    return {**defaults, "engine": engine}


def instruction_of_run(given: Mapping[str, Any]) -> Any:
    """Return what a model was asked below each problem in the run it is from; None for others."""
    model = str(setting(given, "model", "path", BUILT_IN))
    return None if trained_from(model) in BUILT_IN_NAMES else _of_run(model, "data", "instruction")


def trained_from(model: str) -> str:
    """Return the model that the run which a model comes from began with; that itself for others."""
    seen: set[str] = set()
    while isinstance(base := _of_run(model, "model", "path"), str) and model not in seen:
        seen.add(model)
        model = base
    return model


def _of_run(model: str, section: str, key: str) -> Any:
    """Return a setting of the run that a model comes from; None for other models."""
    path = Path(model).expanduser()
    # A run, one of its checkpoints, or the model of that; a name on the hub has no such folders.
    for folder in (path, path.parent.parent, path.parent.parent.parent) if path.is_dir() else ():
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
            recorded = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            return recorded["config"][section][key]
    return None


def _source(given: Mapping[str, Any]) -> str:
    by_default = ENVIRONMENT if setting(given, "data", "environment", "") else BUILT_IN
    return str(setting(given, "data", "train", by_default))


def _of_the_task(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the defaults that depend on the model, and on where the problems come from."""
    own = TOOL_SUMS if source == TOOL_SUMS else BUILT_IN
    model: dict[str, Any] = {"path": setting(given, "model", "path", own)}
    defaults = {"model": model, "grading": _grading(given, source)}
    origin = trained_from(str(model["path"]))
    if origin in BUILT_IN_NAMES or is_small(origin):
        model["cpu_threads"] = 1
    if origin in BUILT_IN_NAMES:
        defaults["engine"] = {"max_new_tokens": 48, "batch_size": 512}
    if source == TOOL_SUMS:
        defaults["episode"] = {"type": "calculator"}
    return defaults


def _grading(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    named = setting(given, "data", "environment", "")
    graded = "environment" if named else "math"
    if source.startswith(PREFIX):
        graded = "reasoning-gym"
    by_source = "exact" if source in BUILT_IN_NAMES else graded
    kind = setting(given, "grading", "type", by_source)
    return {"type": kind, "timeout": GRADERS.get(str(kind), GraderSettings).timeout}
