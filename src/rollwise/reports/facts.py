"""What the header of a run's report says: model, data, method, seed, version, command."""

from collections.abc import Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]


def run_facts(
    config: Settings, versions: Mapping[str, str], started: Mapping[str, str]
) -> dict[str, str]:
    """Describe a run in short facts from its settings, package versions and start."""
    data, heldout = config["data"]["train"], config["data"].get("heldout")
    return {
        **started,
        "model": config["model"]["path"],
        "data": f"{data}, held out: {heldout}" if heldout else str(data),
        "method": method(config),
        "seed": str(config["seed"]),
        "versions": ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
        or "not recorded",
    }


def differing(flat: Sequence[Settings]) -> list[str]:
    """List the names of the flattened settings that are not the same in all."""
    names = dict.fromkeys(name for each in flat for name in each)
    return [name for name in names if any(e.get(name) != flat[0].get(name) for e in flat)]


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
        parts += [f"exit {with_numbers(rule)}", f"schedule {with_numbers(config['schedule'])}"]
        if allocation != "none":
            parts.append(f"allocation {allocation}")
        parts.append(f"groups of {group['size']} ({group['strategy']})")
    parts.append(f"objective {advantage['objective']}")
    if advantage.get("baseline", "pool") != "pool":
        parts.append(f"baseline {advantage['baseline']}")
    return " · ".join(parts)


def with_numbers(section: Settings) -> str:
    """Name the type of a section with its numbers: `balanced (positives 2, negatives 2)`."""
    numbers = [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in section.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value
    ]
    return f"{section['type']} ({', '.join(numbers)})" if numbers else str(section["type"])
