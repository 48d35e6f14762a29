"""How a run samples and learns, in a line."""

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]


def method(config: Settings) -> str:
    """Return how a run samples and learns, by the settings that decide it."""
    rule, group, advantage = config["exit"], config["group"], config["advantage"]
    allocation = config["allocation"]["type"]
    parts = [config["method"]] if "method" in config else []
    parts.append(f"{config['prompts']['batch_size']:,} prompts by {config['prompts']['type']}")
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
