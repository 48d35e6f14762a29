"""What the header of a run's report says: model, data, method, seed, version, command."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import rollwise
from rollwise.config import CommandConfig, TrainConfig, make_settings
from rollwise.records import flatten

Settings = Mapping[str, Any]


def run_facts(config: Settings, versions: Mapping[str, str]) -> dict[str, str]:
    """Describe a run in a few words each.

    Args:
        config: Its settings.
        versions: Of the packages that it ran on; may be empty.
    """
    return {
        "model": config["model"]["path"],
        "data": _data(config),
        "method": method(config),
        "seed": str(config["seed"]),
        "version": ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
        or "not recorded",
        "command": command("train", TrainConfig, config),
    }


def version_fact() -> str:
    """Name this release, for reports of commands that have just run."""
    return f"rollwise {rollwise.__version__}"


SHOWN = ("rollwise", "torch", "transformers")
"""The packages whose versions are shown; all are in `config.json`."""


def method(config: Settings) -> str:
    """Say how a run samples and learns, by the settings that decide it."""
    group, advantage = config["group"], config["advantage"]
    parts = [
        f"prompts {config['prompts']['type']}",
        f"exit {with_numbers(config['exit'])}",
        f"schedule {with_numbers(config['schedule'])}",
    ]
    if config.get("allocation", {}).get("type", "none") != "none":
        parts.append(f"allocation {config['allocation']['type']}")
    parts.append(f"groups of {group['size']} ({group['strategy']})")
    parts.append(f"objective {advantage['objective']}")
    if advantage.get("baseline", "pool") != "pool":
        parts.append(f"baseline {advantage['baseline']}")
    return " · ".join(parts)


def command(name: str, kind: type[CommandConfig], config: Settings) -> str:
    """Return a command with the settings of a run: those that are not the defaults.

    Args:
        name: Of the command.
        kind: Of its settings.
        config: Those of the run.
    """
    words = ["rollwise", name]
    default = flatten(make_settings(kind).model_dump(mode="json"), ".")
    for setting, value in flatten(config, ".").items():
        if setting != "plugin_folder" and value is not None and default.get(setting) != value:
            words += [f"--{setting}", _on_command_line(value)]
    return shlex.join(words)


def _on_command_line(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        return ",".join(str(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)


def _data(config: Settings) -> str:
    data = config["data"]
    heldout = data.get("heldout")
    return f"{data['train']}, held out: {heldout}" if heldout else str(data["train"])


def with_numbers(section: Settings) -> str:
    """Name the type of a section with its numbers: `balanced (positives 2, negatives 2)`."""
    numbers = [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in section.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value
    ]
    return f"{section['type']} ({', '.join(numbers)})" if numbers else str(section["type"])
