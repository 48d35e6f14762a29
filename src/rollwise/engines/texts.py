"""Whether the texts of an engine, which are graded, are those of its tokens, which are learned."""

import logging
import unicodedata
from itertools import islice
from typing import Any

from rollwise.plugins import plugin_name
from rollwise.sampling import RolloutSession
from rollwise.step.outcomes import Completion

log = logging.getLogger(__name__)

LOOKED_AT = 8
"""Completions that are looked at."""


def warn_of_other_texts(engine: object, session: RolloutSession, tokenizer: Any) -> None:
    """Warn if the first completions of a session have other texts than their tokens.

    A text may be a part of what the tokens say, or the other way round, for an engine may cut a
    stop text or what a model thought. White space, special tokens, incomplete characters, capitals
    and compatible forms of characters are left out of account, for tokenizers differ in these.
    """
    responses = (response for pool in session.pools.values() for response in pool.responses)
    for completion in islice(responses, LOOKED_AT):
        if not isinstance(completion, Completion):
            continue
        text, tokens = _bare(completion.text), completion.tokens
        decoded = [tokenizer.decode(tokens, skip_special_tokens=skip) for skip in (True, False)]
        if not any(text in said or said in text for said in map(_bare, decoded)):
            log.warning(
                "%s returned a completion whose text is not that of its tokens: the text is %.80r, "
                "and the tokens say %.80r; the text is graded, and the tokens are learned from",
                plugin_name(engine),
                completion.text,
                decoded[0],
            )
            return


def _bare(text: str) -> str:
    whole = unicodedata.normalize("NFKC", text).casefold().replace("\N{REPLACEMENT CHARACTER}", "")
    return "".join(whole.split())
