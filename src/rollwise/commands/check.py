"""What `rollwise doctor` finds of one thing."""

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """One thing that works here, or does not.

    Attributes:
        part: What it belongs to, such as "engines".
        name: What it is.
        state: `works`; `missing`: not installed, or not possible here; `broken`: installed, but
            not as it should be.
        detail: What was found.
        fix: What to type, or to do; "" if nothing.
    """

    part: str
    name: str
    state: State
    detail: str
    fix: str = ""
