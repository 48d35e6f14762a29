"""Plug-ins that fail or return nonsense: one error, that names them and the line of theirs."""

import numpy as np
import pytest

from rollwise.beliefs import Belief
from rollwise.errors import ConfigError, PluginError
from rollwise.plugins import load_plugin
from rollwise.sampling import ExitRule, Objective, RolloutSession, Streamed
from rollwise.sampling.exits import where_satisfied
from rollwise.sampling.objectives import advantages_by
from rollwise.sampling.pool import Pool
from rollwise.sampling.schedules import Rounds, check_reachable
from rollwise.sampling.selection import select_group
from rollwise.step import Completion, run_session
from rollwise.step.session import checked_results


def rule_of(answer):
    class Rule(ExitRule):
        def satisfied(self, positives, negatives):
            return answer(positives, negatives)

    return Rule()


@pytest.mark.parametrize(
    "answer",
    [
        lambda n, m: None,
        lambda n, m: "no",
        lambda n, m: n / 2,
        lambda n, m: n - m,
        lambda n, m: np.array([True, False]),
        lambda n, m: float(n) if np.ndim(n) == 0 else float("x"),
    ],
    ids=["None", "text", "float", "integers", "shape", "float of counts"],
)
def test_an_exit_rule_must_return_booleans(answer):
    with pytest.raises(
        PluginError, match=r"Rule: `satisfied` \(.*, line \d+\) must return True or"
    ):
        check_reachable(rule_of(answer), Rounds(2, 2))


def test_an_exit_rule_for_single_counts_is_asked_pair_by_pair():
    pairs = np.arange(4)
    rule = rule_of(lambda n, m: n >= 1 and m >= 2)
    assert where_satisfied(rule, pairs, pairs).tolist() == [False, False, True, True]


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


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (None, "NoneType"),
        ([1.0, -1.0], "list"),
        (np.array([np.nan, 0.0]), "nan"),
        (np.zeros(3), "ndarray"),
        (np.ma.masked_array([1.0, 0.0], [True, False]), "MaskedArray"),
    ],
)
def test_advantages_must_be_finite_numbers_one_a_member(values, got):
    class Mine(Objective):
        def advantages(self, pool, group):
            return values

    pool = Pool("a")
    pool.take(1.0, "r")
    pool.take(0.0, "r")
    group = select_group(pool, 2, "balanced")
    with pytest.raises(PluginError, match=rf"Mine: `advantages` .*shape \(2,\), got .*{got}"):
        advantages_by(Mine(), pool, group)


def test_a_module_that_exits_on_import_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "ends_at_once.py").write_text("exit()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"importing ends_at_once ended in exit\(None\)"):
        load_plugin("ends_at_once:Rule", [str(tmp_path)])


@pytest.mark.parametrize("slots", [-1, 4.5, len], ids=["below 0", "float", "function"])
def test_an_engine_must_say_how_many_slots_are_free(slots):
    class Mine:
        free_slots = slots

    session = RolloutSession(["a"], rule_of(lambda n, m: n + m > 1), Streamed(4))
    with pytest.raises(PluginError, match=r"Mine: `free_slots` .*line \d+\) must return None or"):
        run_session(session, Mine(), {}, None)


def test_results_that_an_engine_yields_one_by_one_are_taken():
    draw = RolloutSession(["a"], rule_of(lambda n, m: n + m > 1), Streamed(4)).next_draws()[0]
    found = (Completion(draw, [1], np.zeros(1), "", truncated=False) for _ in range(2))
    assert [result.draw for result in checked_results(None, found)] == [draw, draw]


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


def test_a_belief_that_writes_to_the_indices_changes_them_for_nobody_else():
    class Mine(Belief):
        def believe(self, indices):
            indices[:] = 0
            return np.full(len(indices), 0.5), np.ones(len(indices))

        def learn(self, indices, correct, drawn): ...

    indices = np.arange(3)
    Mine(3).mean(indices)
    assert indices.tolist() == [0, 1, 2]
