"""What is said of the settings of a run: its method, what differs from it, where each is from."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rollwise.config.base import merge
from rollwise.config.defaults import follows_from_counts, trained_from
from rollwise.config.model import BUILT_IN_NAMES
from rollwise.config.reading import make_config
from rollwise.config.train import TrainConfig
from rollwise.methods import METHODS, SECTIONS
from rollwise.records import flatten

UNPROVEN = ("step.normalize_gradients", "prompts.type", "belief.type")
"""What no published run of models of real size had; the first one in several methods."""

Given = Mapping[str, Any]
"""Settings as they were given, without defaults."""


def method_in_words(config: TrainConfig, given: Given) -> str:
    """Return which method a run has, why if none was given, and what differs from it."""
    why = "rewards are 0 and 1"
    if config.method != "single":
        why = "episodes" if config.episode.plays else f"grader `{config.grading.type}`"
        why += " may give any reward; if only 0 and 1, try `single`"
    said = f"method: {config.method}{'' if 'method' in given else f' (no method given; {why})'}"
    changes = [
        f"{name} {value}{'' if usual is None else f' ({usual})'}"
        for name, (value, usual) in differing(config, given).items()
    ]
    return f"{said}; differs: {', '.join(changes)}" if changes else said


def unproven_in_words(config: TrainConfig, given: Given) -> str:
    """Name the settings that our study chose on small models, where the run has another model."""
    if trained_from(config.model.path) in BUILT_IN_NAMES:
        return ""
    names = UNPROVEN if METHODS[config.method].source == "rollwise" else UNPROVEN[:1]
    settings, chosen = flatten(asdict(config), "."), flatten(given, ".")
    of_method = flatten(METHODS[config.method].settings, ".")
    kept = [
        f"{name} = {json.dumps(value)}"
        for name in names
        if (value := of_method.get(name)) and value == settings[name] and name not in chosen
    ]
    where = "chosen on models of 0.1 to 5 M parameters (docs/gpu.md#sources-of-the-defaults)"
    return f"{', '.join(kept)}: {where}" if kept else ""


def differing(config: TrainConfig, given: Given) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the run's method, each with the method's value.

    That is None for a setting that the method's kind of the section does not have. What follows
    from a number of responses that differs is left out.
    """
    settings = asdict(config)
    whole = {name: value for name, value in settings.items() if name not in SECTIONS}
    usual = flatten(asdict(make_config(whole)), ".")
    follows, named = flatten(follows_from_counts(settings), "."), flatten(given, ".")
    return {
        name: (value, usual.get(name))
        for name, value in flatten(settings, ".").items()
        if (value != usual[name] if name in usual else name in named)
        and (name not in follows or follows[name] != value)
    }


def resolved(file: Given, line: Given) -> Iterator[str]:
    """Yield all settings of a run in TOML, each with where it is from.

    Args:
        file: The settings in a file.
        line: Those on the command line, which win.
    """
    settings = flatten(asdict(make_config(file, line)), ".")
    kept, on_line = flatten(merge(file, line), "."), flatten(line, ".")
    of_method = flatten(METHODS[settings["method"]].settings, ".")
    for name, value in settings.items():
        source = "the method" if name in of_method else "default"
        if name in of_method and value != of_method[name]:
            source = "published runs with models of 1.5 to 8 B (docs/gpu.md)"
        if name in kept:
            source = "the command line" if name in on_line else "the file"
        written = f"# {name}" if value is None else f"{name} = {json.dumps(value)}"
        yield f"{written}  # {'unset, ' if value is None else ''}{source}"
