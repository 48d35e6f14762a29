"""Plug-ins that fail or return nonsense: one error, that names them and the line of theirs."""

import pytest

from rollwise.errors import PluginError
from rollwise.sampling import ExitRule, RolloutSession, Streamed


def rule_of(answer):
    class Rule(ExitRule):
        def satisfied(self, positives, negatives):
            return answer(positives, negatives)

    return Rule()


class Handing:
    """A dispatcher that hands out a key in place of a prompt."""

    def add(self, prompt): ...

    def changed(self, prompt): ...

    def next(self, ahead):
        return "a"


def test_a_dispatcher_must_hand_out_prompts_of_the_session():
    class Mine(Streamed):
        def dispatcher(self):
            return Handing()

    session = RolloutSession(["a"], rule_of(lambda n, m: n + m > 1), Mine(4))
    with pytest.raises(PluginError, match=r"Handing: `next` .* a prompt of the session .* 'a'"):
        session.next_draws(1)
