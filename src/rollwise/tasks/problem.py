"""What a problem is."""

import hashlib
import json
from dataclasses import dataclass

Message = dict[str, str]
"""One turn of a conversation: `role` and `content`."""


def problem_key(messages: tuple[Message, ...]) -> str:
    """Name a problem by a hash of what the model is shown: stable over files, orders and runs."""
    shown = json.dumps([[m["role"], m["content"]] for m in messages], ensure_ascii=False)
    return hashlib.blake2b(shown.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def with_system_prompt(messages: tuple[Message, ...], system_prompt: str) -> tuple[Message, ...]:
    """Let `system_prompt`, where there is one, be said first, unless messages have their own."""
    if not system_prompt or any(message["role"] == "system" for message in messages):
        return messages
    return ({"role": "system", "content": system_prompt}, *messages)


@dataclass(frozen=True)
class Problem:
    """A question with an answer that can be verified.

    Attributes:
        key: Names the problem in every pool, sampler state and record.
        messages: What the model is shown, as a conversation.
        answer: The reference answer that the grader is given.
        source: The data set it is from (verl's `data_source`).
        level: The labelled difficulty, where there is one.
        subject: The labelled field, where there is one.
        solution: How the answer is come to, where the data set says so.
    """

    key: str
    messages: tuple[Message, ...]
    answer: str
    source: str = ""
    level: int | None = None
    subject: str = ""
    solution: str = ""

    @classmethod
    def ask(
        cls, question: str, answer: str, source: str = "", level: int | None = None
    ) -> "Problem":
        """Make a problem of a single question, keyed by its text."""
        messages = ({"role": "user", "content": question},)
        return cls(problem_key(messages), messages, answer, source, level)
