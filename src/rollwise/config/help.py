"""What `--help` says of settings: their meaning, type, limits and default, as they are declared."""

import functools
import math
import textwrap
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from rollwise.config.base import CommandConfig, SamplingConfig
from rollwise.config.choices import CHOICES
from rollwise.config.reading import declared, make_settings, unknown_setting
from rollwise.config.sections import LIMITS, TYPES, Section, Setting
from rollwise.config.train import TrainConfig
from rollwise.config.variants import Variant
from rollwise.errors import ConfigError
from rollwise.sampling.checks import limits_of, plain_types

COMMON = {
    *("method", "steps", "tokens", "seconds", "seed", "seeds", "samples", "benchmarks", "baseline"),
    *("methods", "base", "rewards", "target", "workers", "warmup", "selection.range"),
    *("pass_rates.alpha", "pass_rates.beta", "prices.median", "choose", "evaluations"),
    *("model.path", "model.lora_rank", "data.train", "data.heldout", "data.sources"),
    *("data.instruction", "grading.type", "prompts.batch_size", "exit.type", "exit.samples"),
    *("advantage.objective", "engine.type", "engine.max_new_tokens", "engine.temperature"),
    *("engine.batch_size", "learner.learning_rate", "learner.mini_batches"),
    *("learner.micro_batch_tokens", "evaluation.every", "checkpoint.every"),
}
"""Settings that people set most, of all commands."""

GIVEN = ("MODEL", "FILE")
"""Stand for a model and data of one's own, for which defaults are shown."""

WIDTH, COLUMN = 79, 32


def common_help(kind: type[CommandConfig]) -> str:
    """Describe the settings of a command that people set most, and name its sections."""
    shown: dict[str, str] = {}
    for name, each, section in declared(kind):
        is_usual, default = _default(kind, name, each, section)
        if name in COMMON and (name not in shown or is_usual):
            meaning = each.meaning.partition(". ")[0].rstrip(".")
            if choice := _choice(name):
                about = (choice.__doc__ or "").partition(".")[0]
                meaning = f"{about}; one of {', '.join(choice.kinds)}"
            first, *more = _wrap(f"{meaning}.{default and f' [{default}]'}", width=WIDTH - COLUMN)
            lines = [f"  {f'--{name}':{COLUMN - 2}}{first}", *(" " * COLUMN + m for m in more)]
            shown[name] = "\n".join(lines)
    others = {n.partition(".")[0]: 0 for n, _, own in declared(kind) if own or n not in shown}
    all_of = f"`--help NAME` shows one setting, or all of a section: {', '.join(others)}."
    title = "common settings [defaults with a model and data of your own]:"
    return "\n".join([title, *shown.values(), "", *_wrap(all_of)])


def section_help(kind: type[CommandConfig], topic: str) -> str:
    """Describe a setting, or all of a section, with types, limits and defaults."""
    found = [each for each in declared(kind) if f"{each[0]}.".startswith(f"{topic}.")]
    if not found:
        raise ConfigError(unknown_setting(topic, [name for name, _, _ in declared(kind)]))
    shared: dict[str, str] = {}
    of_kinds: list[str] = []
    for name, each, section in found:
        is_usual, default = _default(kind, name, each, section)
        about = ", ".join(_type(each) + ([f"default {default}"] if default else []))
        entry = "\n      ".join(
            [f"  --{name}", f"({about})", *_wrap(each.meaning, width=WIDTH - 6)]
        )
        if _choice(name):
            chosen = f"{name} = {each.default}{' (default)' if is_usual else ''}"
            of_kinds += ["", *_wrap(f"{chosen}: {each.meaning}")]
        elif getattr(section, "kind", None) is each.owner:
            of_kinds.append(entry)
        elif name not in shared or is_usual:
            shared[name] = entry
    return "\n".join([*shared.values(), *of_kinds]).lstrip("\n")


def _choice(name: str) -> type[Variant] | None:
    """Return the section whose kind a setting names; None for other settings."""
    choice = CHOICES.get(name.partition(".")[0])
    return choice if choice and name == f"{choice.section}.{choice.tag}" else None


_wrap = functools.partial(textwrap.wrap, width=WIDTH, break_on_hyphens=False)


@functools.cache
def _usual(kind: Any) -> CommandConfig | None:
    """Return the settings of a usual run; None if the command draws nothing."""
    data = {"data": {"train": GIVEN[1]}} if kind is TrainConfig else {}
    is_run = issubclass(kind, SamplingConfig)
    return make_settings(kind, {"model": {"path": GIVEN[0]}}, data) if is_run else None


def _default(
    kind: Any, name: str, each: Setting, section: type[Section] | None
) -> tuple[bool, str]:
    """Return whether a usual run has this kind of a section, and the default; "" if it is empty."""
    table, _, key = name.rpartition(".")
    usual: Any = getattr(_usual(kind), table) if table and _usual(kind) else _usual(kind)
    is_usual = usual is None or section in (None, type(usual))
    value = getattr(usual, key) if is_usual and usual else each.default
    value = each.default if value in GIVEN else value
    shown = ",".join(value) if isinstance(value, list) else str(value)
    empty = value is None or value == {}
    return is_usual, "" if empty else shown.lower() if isinstance(value, bool) else shown


def _type(each: Setting) -> list[str]:
    if get_origin(each.hint) is Literal:
        return [" or ".join(map(str, get_args(each.hint)))]
    names = sorted(kind.__name__ for kind in plain_types(each.hint) - {NoneType})
    limits = [(LIMITS[end], limit) for end, limit in limits_of(each.hint).items()]
    types = " or ".join(TYPES.get(name, name) for name in names)
    return [types, *(f"{words} {limit:,}" for words, limit in limits if abs(limit) < math.inf)]
