"""From problems to the tokens that the model is shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rollwise.errors import DataError
from rollwise.tasks.problem import Problem


@dataclass(frozen=True)
class EncodedPrompts:
    """Problems whose prompts fit, with their tokens.

    Attributes:
        problems: Those kept, in the order given.
        token_ids: Their prompts, key -> token ids.
        too_long: How many were dropped: a problem that is cut off has another answer.
        limit: The most tokens of a prompt that was kept.
    """

    problems: list[Problem]
    token_ids: dict[str, list[int]]
    too_long: int
    limit: int


def encode_prompts(
    problems: Iterable[Problem], tokenizer: Any, max_prompt_tokens: int
) -> EncodedPrompts:
    """Encode each problem as `tokenizer` would have it; drop those of more than the most tokens.

    With a chat template, that renders the conversation and opens the answer. Without one (a base
    model), the contents are joined by newlines and encoded as plain text, with the special tokens
    that the tokenizer puts around any text.

    Args:
        problems: With different keys.
        tokenizer: Of transformers.
        max_prompt_tokens: The most tokens of a prompt, special ones counted.

    Raises:
        DataError: No problem given, or none left.
    """
    encoded = [(problem, _encode(problem, tokenizer)) for problem in problems]
    if not encoded:
        raise DataError("there are no problems to encode")
    fitting = [(problem, ids) for problem, ids in encoded if len(ids) <= max_prompt_tokens]
    if not fitting:
        shortest = min(len(ids) for _, ids in encoded)
        raise DataError(
            f"all {len(encoded):,} prompts are longer than data.max_prompt_tokens = "
            f"{max_prompt_tokens}, and the shortest has {shortest:,} tokens: raise "
            "data.max_prompt_tokens"
        )
    return EncodedPrompts(
        problems=[problem for problem, _ in fitting],
        token_ids={problem.key: ids for problem, ids in fitting},
        too_long=len(encoded) - len(fitting),
        limit=max_prompt_tokens,
    )


def _encode(problem: Problem, tokenizer: Any) -> list[int]:
    messages = list(problem.messages)
    if getattr(tokenizer, "chat_template", None) is None:
        return list(tokenizer.encode("\n".join(message["content"] for message in messages)))
    return list(
        tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    )
