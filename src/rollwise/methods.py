"""The methods by name: which settings each of them has (`methods.toml`)."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECTIONS = (
    *("prompts", "belief", "exit", "schedule", "allocation", "group", "advantage", "step"),
    "learner",
)
"""The sections that a method decides."""


STUDY = "as our study chose"

PUBLISHED = {"mini_batches": 2, "warmup_updates": 20, "max_grad_norm": 1.0}
"""How models that are not built in learn, in place of what our study chose for 0.33 M parameters.

An update has 128 of 256 responses, as FlashREINFORCE's for 1.5 B (SPO's has 96 for 8 B, DAPO's 512
for 7 B); the rate rises over ten steps, and gradients above 1 are scaled down, as in DAPO and SPO.
"""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way of sampling prompts and of learning from the responses, published or ours.

    Attributes:
        about: What it does.
        source: The paper that its sampling is from.
        learns: Where the settings of its learner are from.
        rate: The learning rate that goes with them for the built-in models.
        like: The method that it changes.
        settings: Its settings, in the shape of a settings file, beside the defaults of each kind.
    """

    about: str
    source: str
    learns: str = STUDY
    rate: float = 1.4e-4
    like: str = "single"
    settings: Mapping[str, Mapping[str, Any]]


def _read() -> dict[str, Method]:
    """Read the table; a method follows the one that it is `like`."""
    found: dict[str, Method] = {}
    text = Path(__file__).with_name("methods.toml").read_text(encoding="utf-8")
    for name, own in tomllib.loads(text).items():
        whole = vars(found[own["like"]]) if "like" in own else {"settings": {}}
        sections = {section: own.pop(section) for section in SECTIONS if section in own}
        found[name] = Method(**{**whole, **own, "settings": {**whole["settings"], **sections}})
    return found


METHODS = _read()
"""What `method` may be, by name."""


def method_of(name: Any) -> Method:
    """Return a method by its name; a `ValueError` names those that there are."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    simple = str(name).lower().replace("-", "_")
    near = [simple] if simple in METHODS else difflib.get_close_matches(simple, METHODS, n=1)
    raise ValueError(
        f"`method` should be one of {', '.join(f'`{known}`' for known in METHODS)}; it is "
        f"{name!r:.100}{f'; did you mean `{near[0]}`?' if near else ''}"
    )
