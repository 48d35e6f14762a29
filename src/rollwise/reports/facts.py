"""What the header of a run's report says: model, data, method, seed, version, command."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rollwise.config import CommandConfig, TrainConfig, make_settings, plugins_in, sections_of
from rollwise.config.base import nested
from rollwise.errors import ConfigError
from rollwise.records import flatten

Settings = Mapping[str, Any]


def run_facts(
    config: Settings, versions: Mapping[str, str], started: Mapping[str, str]
) -> dict[str, str]:
    """Describe a run in a few words each, by its settings, versions of packages, and its start."""
    data, heldout = config["data"]["train"], config["data"].get("heldout")
    return {
        **started,
        "model": config["model"]["path"],
        "data": f"{data}, held out: {heldout}" if heldout else str(data),
        "method": method(config),
        "seed": str(config["seed"]),
        "versions": ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
        or "not recorded",
        "command": command("train", TrainConfig, config),
    }


def differing(flat: Sequence[Settings]) -> list[str]:
    """List the names of the settings, flattened, in which some differ from others."""
    names = dict.fromkeys(name for each in flat for name in each)
    return [name for name in names if any(e.get(name) != flat[0].get(name) for e in flat)]


NEEDED = {"compare": ("methods", "rewards", "steps", "tokens", "seconds")}
"""Settings of commands that have no defaults for all of theirs."""

SHOWN = ("rollwise", "torch", "transformers")
"""The packages whose versions are shown; all are in `config.json`."""


def method(config: Settings) -> str:
    """Say how a run samples and learns, by the settings that decide it."""
    rule, group, advantage = config["exit"], config["group"], config["advantage"]
    allocation = config["allocation"]["type"]
    parts = [f"{config['prompts']['batch_size']:,} prompts by {config['prompts']['type']}"]
    if (allocation, rule["type"], rule.get("samples")) == ("none", "fixed_count", 1):
        parts.append("single responses")
    else:
        parts.append(f"exit {with_numbers(rule)}")
        parts.append(f"schedule {with_numbers(config['schedule'])}")
        if allocation != "none":
            parts.append(f"allocation {allocation}")
        parts.append(f"groups of {group['size']} ({group['strategy']})")
    parts.append(f"objective {advantage['objective']}")
    if advantage.get("baseline", "pool") != "pool":
        parts.append(f"baseline {advantage['baseline']}")
    return " · ".join(parts)


def command(name: str, kind: type[CommandConfig], config: Settings) -> str:
    """Return a command that has the settings of a run: those that are not the defaults.

    Some defaults depend on other settings, so that they are compared again with those that are
    given, until nothing is missing. Where a plug-in is named, or a setting of another release, the
    settings that differ from those of the plain command are all that is known.

    Args:
        name: Of the command.
        kind: Of its settings.
        config: Those of the run.
    """
    recorded = {s: value for s, value in _by_name(kind, config).items() if value is not None}
    given = {s: recorded[s] for s in NEEDED.get(name, ()) if recorded.get(s)}
    while not any(plugins_in(nested(item)) for item in given.items()):
        try:
            made = make_settings(kind, *map(nested, given.items())).model_dump(mode="json")
        except ConfigError:
            break
        default = _by_name(kind, made)
        more = {s: v for s, v in recorded.items() if s not in given and default.get(s) != v}
        if not more:
            break
        given |= more
    options = [(f"--{s}", _on_command_line(given[s])) for s in recorded if s in given]
    return shlex.join(["rollwise", name, *(word for option in options for word in option)])


def _by_name(kind: type[CommandConfig], config: Settings) -> dict[str, Any]:
    """Return settings by their names on the command line; a table that is no section is whole."""
    fields = kind.model_fields
    whole = {name for name in config if name in fields and not sections_of(fields[name].annotation)}
    sections = {name: value for name, value in config.items() if name not in whole}
    return flatten(sections, ".") | {name: config[name] for name in sorted(whole)}


def _on_command_line(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        return ",".join(str(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)


def with_numbers(section: Settings) -> str:
    """Name the type of a section with its numbers: `balanced (positives 2, negatives 2)`."""
    numbers = [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in section.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value
    ]
    return f"{section['type']} ({', '.join(numbers)})" if numbers else str(section["type"])
