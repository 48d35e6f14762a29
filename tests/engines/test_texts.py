"""Texts that are not those of the tokens beside them."""

import numpy as np
import pytest

from rollwise.engines import Completion
from rollwise.engines.texts import warn_of_other_texts
from rollwise.sampling import FixedCount, RolloutSession, Rounds

WORDS = {1: "<end>", 2: " It", 3: " is", 4: " 42", 5: ".", 6: "\ufffd", 7: "<think>"}


class Tokenizer:
    def decode(self, tokens, skip_special_tokens):
        special = (1, 7) if skip_special_tokens else ()
        return "".join(WORDS[token] for token in tokens if token not in special)


@pytest.mark.parametrize(
    ("text", "is_other"),
    [
        (" It is 42.", False),
        ("It is 42 .", False),  # as decoders clean up, or not
        ("it is 42", False),  # before a stop text
        ("<think> It is 42.<end>", False),
        ("", False),
        ("It is 43.", True),
        ("It is 42. It is 42.!", False),
    ],
)
def test_a_text_that_is_no_part_of_what_its_tokens_say_is_noticed(text, is_other, caplog):
    session = RolloutSession(["a"], FixedCount(2), Rounds(2, rounds=1))
    for draw in session.next_draws():
        completion = Completion(draw, [7, 2, 3, 4, 5, 6, 1], np.zeros(7), text, truncated=False)
        session.record(draw, 1.0, completion)
    warn_of_other_texts(object(), session, Tokenizer())
    assert [text in record.getMessage() for record in caplog.records] == [True] * is_other
