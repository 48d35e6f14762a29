"""What ends a response: by the model's configuration, its tokenizer and its chat template."""

from collections.abc import Collection, Sequence
from typing import Any

from rollwise.errors import ModelError

_SAID = "seven times seven"


def end_tokens(generation: Any, tokenizer: Any) -> set[int]:
    """Return the tokens that end a response, at least one.

    They are those of the generation configuration, the tokenizer's end of sequence, and the end of
    a turn in the chat template. The last one is often missing among the others in base models,
    which are trained to end texts rather than turns.

    Args:
        generation: A generation configuration; None if there is none.
        tokenizer: Of transformers.

    Raises:
        ModelError: There are none.
    """
    if not (found := known_ends(generation, tokenizer)):
        raise ModelError(
            "model.path: nothing ends a response of this model: set `eos_token_id` in its "
            "generation_config.json, or `eos_token` in its tokenizer_config.json"
        )
    return found


def known_ends(generation: Any, tokenizer: Any) -> set[int]:
    """Return what `end_tokens` does, or an empty set: a server may know more."""
    turn = end_of_turn(tokenizer)
    return configured_ends(generation, tokenizer) | (set() if turn is None else {turn})


def configured_ends(generation: Any, tokenizer: Any) -> set[int]:
    """Return the end tokens that a generation configuration and the tokenizer name.

    Raises:
        ModelError: An id is no number.
    """
    configured = generation.eos_token_id if generation else None
    own = configured if isinstance(configured, list) else [configured]
    named = [token for token in [*own, tokenizer.eos_token_id] if token is not None]
    if not all(isinstance(token, int) for token in named):
        raise ModelError(
            "model.path: `eos_token_id` in generation_config.json must be a number or a list of "
            f"numbers, got {configured!r}"
        )
    return {token for token in named if token >= 0}


def end_of_turn(tokenizer: Any) -> int | None:
    """Return the token with which the chat template closes what the model said.

    It is what follows the words of the last turn of a conversation, if that is one of the tokens
    added to the vocabulary: `<|im_end|>` in ChatML, `<|return|>` in Harmony. None if there is no
    such token, or no template, or if the template refuses a conversation of a user and the model.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _SAID}]
    try:
        text = tokenizer.apply_chat_template(said, tokenize=False)
    except Exception:  # a template is a program, which may raise anything
        return None
    _, found, rest = text.rpartition(_SAID)
    special = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    added = {**tokenizer.get_added_vocab(), **dict(special)}
    following = [token for token in added if token and rest.lstrip().startswith(token)]
    return added[max(following, key=len)] if found and following else None


def text_of(tokenizer: Any, tokens: Sequence[int], ends: Collection[int]) -> str:
    """Decode a response without special tokens, and without the token that ends it."""
    own = tokens[:-1] if tokens and tokens[-1] in ends else tokens
    return str(tokenizer.decode(own, skip_special_tokens=True))
