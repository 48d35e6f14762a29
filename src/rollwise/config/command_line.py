"""What the command line needs to know before it is parsed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.config.base import merge
from rollwise.config.choices import CHOICES
from rollwise.config.reading import read_toml


def plugins_given(arguments: Sequence[str]) -> dict[str, Any]:
    """Find the plug-ins that a command line names, in its options and in the files that it names.

    Their settings become options, so they must be known before the options are parsed.

    Returns:
        The settings that name them: `section.type` for each, and `plugin_folder`.
    """
    found: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        value = value if equals else following
        if argument.endswith(".toml") and Path(argument).is_file():
            found = merge(found, _kinds(read_toml(Path(argument))))
        elif name == "--output" and "--resume" in arguments:
            found = merge(_kinds(_recorded(Path(value))), found)
        elif name == "--plugin_folder":
            options["plugin_folder"] = value
        section, _, key = name.removeprefix("--").partition(".")
        if section in CHOICES and key == CHOICES[section].tag:
            options[section] = {key: value}
    return merge(found, options)


def _recorded(folder: Path) -> Mapping[str, Any]:
    """Read the settings of a run; what is wrong with them is said when it is resumed."""
    try:
        recorded = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return recorded if isinstance(recorded, Mapping) else {}


def _kinds(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of settings only which kind each section is, and where plug-ins are."""
    kept: dict[str, Any] = {}
    for name, choice in CHOICES.items():
        section = given.get(name)
        if isinstance(section, Mapping) and choice.tag in section:
            kept[name] = {choice.tag: section[choice.tag]}
    folder = given.get("plugin_folder")
    return kept | ({"plugin_folder": folder} if folder else {})
