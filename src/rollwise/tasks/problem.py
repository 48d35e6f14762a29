"""`Problem`: a question with an answer that can be verified."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, str]
"""One turn of a conversation: `role` and `content`."""

_LAYOUT = re.compile(r"\s+|\\left\b|\\right\b|\\[!,;: ]")


def problem_key(messages: tuple[Message, ...]) -> str:
    """Return a hash of what the model is shown: the same in all files, orders and runs."""
    shown = json.dumps([[m["role"], m["content"]] for m in messages], ensure_ascii=False)
    return hashlib.blake2b(shown.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def with_system_prompt(messages: tuple[Message, ...], system_prompt: str) -> tuple[Message, ...]:
    """Put `system_prompt` first, unless it is empty or the messages have one of their own."""
    if not system_prompt or any(message["role"] == "system" for message in messages):
        return messages
    return ({"role": "system", "content": system_prompt}, *messages)


@dataclass(frozen=True)
class Problem:
    """A question with an answer that can be verified.

    Attributes:
        key: Names the problem in every pool, sampler state and record.
        messages: What the model is shown, as a conversation.
        answer: The reference answer, which the grader is given.
        source: The data set that it comes from (verl's `data_source`).
        level: Its labelled difficulty, if there is one.
        subject: Its labelled field, if there is one.
        solution: A worked solution, if the data set has one.
        measured: How many responses were correct, and how many drawn, when its pass rate was
            measured; 0 and 0 if it was not.
        columns: Further columns that were asked for: name -> value.
    """

    key: str
    messages: tuple[Message, ...]
    answer: str
    source: str = ""
    level: int | None = None
    subject: str = ""
    solution: str = ""
    measured: tuple[float, float] = (0.0, 0.0)
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def question(self) -> str:
        """The text of the last message, the assistant's apart."""
        return next((m["content"] for m in self.messages[::-1] if m["role"] != "assistant"), "")

    @property
    def row(self) -> dict[str, Any]:
        """What a grader can be given besides the answer: `rollwise.grading.Row`."""
        known = {"prompt": self.question, "messages": list(self.messages)}
        return {**self.columns, **known, "data_source": self.source}

    @classmethod
    def ask(
        cls, question: str, answer: str, source: str = "", level: int | None = None
    ) -> "Problem":
        """Make a problem of a single question, keyed by its text."""
        messages = ({"role": "user", "content": question},)
        return cls(problem_key(messages), messages, answer, source, level)


def remove_near_duplicates(problems: Iterable[Problem]) -> list[Problem]:
    """Keep the first of problems with one answer that differ in letter case or layout alone."""
    kept: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        asked = " ".join(m["content"] for m in problem.messages if m["role"] != "system")
        text = _LAYOUT.sub("", asked).casefold()
        kept.setdefault((text, problem.answer.strip()), problem)
    return list(kept.values())
