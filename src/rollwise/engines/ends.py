"""Which tokens end a response."""

from typing import Any


def end_tokens(generation: Any, tokenizer: Any) -> set[int]:
    """Collect the tokens that end a response, by a generation configuration and the tokenizer.

    Raises:
        ValueError: There are none.
    """
    configured = generation.eos_token_id if generation else None
    own = configured if isinstance(configured, list) else [configured]
    found = {token for token in [*own, tokenizer.eos_token_id] if token is not None}
    if not found:
        raise ValueError(
            "neither the model's generation_config nor its tokenizer has an end-of-sequence token"
        )
    return found
