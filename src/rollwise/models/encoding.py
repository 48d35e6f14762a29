"""From problems to the tokens that the model is shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rollwise.errors import ConfigError, DataError
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


def encode_fitting(
    problems: list[Problem],
    tokenizer: object,
    max_prompt_tokens: int,
    max_new_tokens: int,
    context: int | None,
) -> EncodedPrompts:
    """Encode problems; leave out those whose prompt leaves no room for a response.

    Raises:
        DataError: No problem is left.
        ConfigError: The model's context has no room for any prompt.
    """
    limit = prompt_limit(max_prompt_tokens, max_new_tokens, context)
    try:
        return encode_prompts(problems, tokenizer, limit)
    except DataError as error:
        if limit == max_prompt_tokens or not problems:
            raise
        raise DataError(
            f"no prompt fits: the model's context is {context} tokens, and `engine.max_new_tokens` "
            f"= {max_new_tokens} leaves {limit} of them; lower it"
        ) from error


def prompt_limit(max_prompt_tokens: int, max_new_tokens: int, context: int | None) -> int:
    """Return the most tokens of a prompt that leaves room for a response.

    Raises:
        ConfigError: The model's context has no room for any prompt.
    """
    if context is None:
        return max_prompt_tokens
    room = context - max_new_tokens
    if room < 1:
        raise ConfigError(
            f"`engine.max_new_tokens` must be below the model's context of {context} tokens, "
            f"it is {max_new_tokens}"
        )
    return min(max_prompt_tokens, room)


def _encode(problem: Problem, tokenizer: Any) -> list[int]:
    messages = list(problem.messages)
    if getattr(tokenizer, "chat_template", None) is None:
        return list(tokenizer.encode("\n".join(message["content"] for message in messages)))
    return list(
        tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    )
