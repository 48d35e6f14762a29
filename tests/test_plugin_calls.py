"""Plug-ins that fail or return nonsense: one error, that names them and the line of theirs."""

import numpy as np
import pytest

from rollwise.errors import PluginError
from rollwise.sampling import ExitRule, RolloutSession, Streamed
from rollwise.step import Completion, run_session


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


@pytest.mark.parametrize("slots", [-1, 4.5, len], ids=["below 0", "float", "function"])
def test_an_engine_must_say_how_many_slots_are_free(slots):
    class Mine:
        free_slots = slots

    session = RolloutSession(["a"], rule_of(lambda n, m: n + m > 1), Streamed(4))
    with pytest.raises(PluginError, match=r"Mine: `free_slots` .*line \d+\) must return None or"):
        run_session(session, Mine(), {}, None)


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        ({"draw": "a"}, "results whose draw is one of those submitted"),
        ({"tokens": [1, 2, 3]}, r"within 2 tokens \(`engine.max_new_tokens`\), not 3"),
        ({"tokens": 5}, "tokens are a list of token ids"),
        ({"logprobs": np.zeros(4)}, "a log-probability for each token"),
        *(({"logprobs": [p, -1.0]}, "finite numbers, at most 0") for p in (-np.inf, 0.5)),
    ],
)
def test_a_completion_with_a_wrong_part_names_its_engine(changed, due):
    class Mine:
        free_slots = 4

        def submit(self, draws, prompts):
            self.draws = draws

        def wait(self):
            right = {"tokens": [1, 2], "logprobs": np.zeros(2), "text": "", "truncated": False}
            return [Completion(**{"draw": draw} | right | changed) for draw in self.draws]

    session = RolloutSession(["a"], rule_of(lambda n, m: n + m > 1), Streamed(4))
    with pytest.raises(PluginError, match=f"Mine: `wait` .*{due}"):
        run_session(session, Mine(), {"a": [1]}, None, max_new_tokens=2)
