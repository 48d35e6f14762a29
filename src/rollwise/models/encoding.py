"""From problems to the tokens that the model is shown."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwise.errors import ConfigError, DataError, ModelError, half_of_a_pair, one_line
from rollwise.tasks.problem import Problem


@dataclass(frozen=True)
class EncodedPrompts:
    """Problems whose prompts fit, with their tokens.

    Attributes:
        problems: Those kept, in the order given.
        token_ids: Their prompts, key -> token ids.
        too_long: How many were dropped, not cut: a shortened problem has another answer.
        limit: The most tokens of a prompt that was kept.
    """

    problems: list[Problem]
    token_ids: dict[str, list[int]]
    too_long: int
    limit: int


def encode_prompts(
    problems: Iterable[Problem],
    tokenizer: Any,
    max_prompt_tokens: int,
    max_new_tokens: int = 0,
    context: int | None = None,
) -> EncodedPrompts:
    """Encode each problem; drop those whose prompt is too long, or leaves no room for a response.

    A chat template, if any, renders the conversation and opens the answer, or leaves open the words
    of the assistant's that it ends with. Without one (a base model), the contents are joined by
    newlines and encoded as plain text, with the special tokens that the tokenizer puts before any
    text. What a tokenizer or a template puts behind the prompt to end it is left out: the model is
    to continue.

    Args:
        problems: With different keys.
        tokenizer: Of transformers.
        max_prompt_tokens: The most tokens of a prompt, special ones counted.
        max_new_tokens: The most tokens of a response.
        context: The most tokens of both that the model takes; None if unknown.

    Raises:
        DataError: No problem is given, or one has half of a surrogate pair.
        ConfigError: No prompt fits.
        ModelError: The chat template fails.
    """
    limit = max_prompt_tokens
    if context is not None:
        limit = min(limit, context - max_new_tokens)
    encoded = [(problem, encode_conversation(tokenizer, problem.messages)) for problem in problems]
    if not encoded:
        raise DataError("there are no problems to encode")
    fitting = [(problem, ids) for problem, ids in encoded if len(ids) <= limit]
    if not fitting:
        shortest = min(len(ids) for _, ids in encoded)
        raise ConfigError(
            f"none of {len(encoded):,} prompts fits: the shortest has {shortest:,} tokens, and "
            f"{limit:,} are left of `data.max_prompt_tokens` = {max_prompt_tokens} and of the "
            f"model's context, {context}, without `engine.max_new_tokens` = {max_new_tokens}: "
            f"{'raise the first' if shortest > max_prompt_tokens else 'lower the last'}"
        )
    return EncodedPrompts(
        problems=[problem for problem, _ in fitting],
        token_ids={problem.key: ids for problem, ids in fitting},
        too_long=len(encoded) - len(fitting),
        limit=limit,
    )


def encode_conversation(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Encode a conversation that the model is to continue, as `encode_prompts` does."""
    text = "\n".join(message["content"] for message in messages)
    if half := half_of_a_pair(text):
        raise DataError(
            f"the prompt {text[:80]!r} cannot be encoded: {half} is half of a surrogate "
            "pair, which is not a character"
        )
    if getattr(tokenizer, "chat_template", None) is None:
        return _begun(tokenizer, text)
    if messages[-1]["role"] == "assistant":
        return _rendered(tokenizer, messages, opened=False, continued=True)
    return _opened(tokenizer, messages)


def _opened(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Render a conversation up to where the model's words begin."""
    ids = _rendered(tokenizer, messages, opened=True)
    if ids[-1:] != [tokenizer.eos_token_id]:
        return ids
    closed = _rendered(tokenizer, messages, opened=False)
    without = _without_end(tokenizer, ids)
    # A template that opens no answer closes the user's turn with this token (DialoGPT's).
    return ids if without == _without_end(tokenizer, closed) else without


def _begun(tokenizer: Any, text: str) -> list[int]:
    """Encode a text without the special tokens that the tokenizer puts behind it."""
    whole = list(tokenizer.encode(text))
    own = list(tokenizer.encode(text, add_special_tokens=False))
    ends = range(len(whole), len(own) - 1, -1)
    return next((whole[:end] for end in ends if whole[end - len(own) : end] == own), whole)


def _without_end(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Drop end tokens from the end."""
    count = len(ids)
    while count and ids[count - 1] == tokenizer.eos_token_id:
        count -= 1
    return list(ids[:count])


def turn_encoder(
    tokenizer: Any, end_tokens: Collection[int], roles: Sequence[str] = ("user",)
) -> Callable[[str | Sequence[Mapping[str, str]]], list[int]]:
    """Make a function that encodes what an environment says after a turn of the model.

    With a chat template, a text becomes a user message, and what follows the model's end token is
    taken from the template. Without a template, a text is encoded as it is.

    Args:
        tokenizer: Of transformers.
        end_tokens: Token ids that end a turn of the model.
        roles: Roles of the messages that the environment may say; each is tried.

    Raises:
        ModelError: The template refuses a message of one of the roles after the model's turn, or
            renders that turn differently once more follows; the encoder raises it too. The template
            may leave something out of that turn, as Qwen3's does with empty thoughts.
    """
    if getattr(tokenizer, "chat_template", None) is None:

        def encode_plain(says: str | Sequence[Mapping[str, str]]) -> list[int]:
            text = says if isinstance(says, str) else "\n".join(m["content"] for m in says)
            return list(tokenizer.encode(text, add_special_tokens=False))

        return encode_plain
    before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    common = _rendered(tokenizer, before, opened=False)
    turns = sum(token in end_tokens for token in common)
    shown = _up_to_end(common, end_tokens, turns)

    def encode(says: str | Sequence[Mapping[str, str]]) -> list[int]:
        messages = [{"role": "user", "content": says}] if isinstance(says, str) else list(says)
        whole = _opened(tokenizer, [*before, *messages])
        again = _up_to_end(whole, end_tokens, turns) if turns else whole[: len(common)]
        if not _is_cut_from(shown, again):
            raise ModelError(
                "model.path: the model's chat template renders a conversation differently once a "
                f"message of the role {messages[0]['role']!r} follows, so that turns cannot be "
                "appended to it: take a model whose template leaves what was said as it is, or "
                "change the file chat_template.jinja"
            )
        return whole[len(again) :]

    for role in roles:
        encode([{"role": role, "content": "?"}])
    return encode


def _up_to_end(ids: list[int], end_tokens: Collection[int], number: int) -> list[int]:
    """Cut a conversation after its `number`-th end token; it stays whole if it has fewer."""
    ends = [place for place, token in enumerate(ids) if token in end_tokens]
    return ids[: ends[number - 1] + 1] if 0 < number <= len(ends) else ids


def _is_cut_from(whole: list[int], part: list[int]) -> bool:
    """Return whether `part` is `whole`, or `whole` without one piece in its middle."""
    same = 0
    while same < min(len(whole), len(part)) and whole[same] == part[same]:
        same += 1
    left = len(part) - same
    return len(part) <= len(whole) and whole[len(whole) - left :] == part[same:]


def _rendered(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], opened: bool, continued: bool = False
) -> list[int]:
    """Render a conversation; open another turn of the model's, or let it continue its last one."""
    given = [dict(message) for message in messages]
    turn = {"add_generation_prompt": opened, "continue_final_message": continued}
    options = {**turn, "tokenize": True, "return_dict": False}
    try:
        return list(tokenizer.apply_chat_template(given, **options))
    except Exception as error:  # a template is a program of the model's, which may raise anything
        roles = ", ".join(message["role"] for message in messages)
        raise ModelError(
            f"model.path: the model's chat template fails on a conversation of {roles}: "
            f"{one_line(error)}"
        ) from error
