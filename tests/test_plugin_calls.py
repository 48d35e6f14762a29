"""Plug-ins that fail or return nonsense: one error, that names them and the line of theirs."""

import numpy as np
import pytest

from rollwise.errors import ConfigError, PluginError
from rollwise.plugins import load_plugin
from rollwise.sampling import ExitRule, Objective, RolloutSession, Streamed
from rollwise.sampling.exits import RewardRule, where_satisfied
from rollwise.sampling.objectives import advantages_by
from rollwise.sampling.pool import Pool
from rollwise.sampling.schedules import Rounds, check_reachable
from rollwise.sampling.selection import select_group


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
    with pytest.raises(PluginError, match=r"Rule: `satisfied` \(.*, line \d+\) must return"):
        RolloutSession(["a"], rule_of(answer), Rounds(2, 2)).next_draws()
    with pytest.raises(PluginError, match="must return True or False"):
        check_reachable(rule_of(lambda n, m: None), Rounds(2, 2))


def test_an_exit_rule_for_single_counts_is_asked_pair_by_pair():
    pairs = np.arange(4)
    rule = rule_of(lambda n, m: n >= 1 and m >= 2)
    assert where_satisfied(rule, pairs, pairs).tolist() == [False, False, True, True]


def test_an_exit_rule_that_raises_is_named_with_its_line():
    class Rule(ExitRule):
        def satisfied(self, positives, negatives):
            missing = {}
            return missing["x"]  # the line that is named

    line = Rule.satisfied.__code__.co_firstlineno + 2
    with pytest.raises(PluginError, match=rf"Rule: .*{__file__}, line {line}\) raised KeyError"):
        RolloutSession(["a"], Rule(), Rounds(2, 2)).next_draws()


def test_a_rule_of_rewards_must_return_booleans():
    class Rule(RewardRule):
        def satisfied_by(self, rewards):
            return rewards

    session = RolloutSession(["a"], Rule(), Streamed(4))
    (draw,) = session.next_draws(1)
    with pytest.raises(PluginError, match=r"Rule: `satisfied_by` .* must return True or False"):
        session.record(draw, 1.0)


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (None, "NoneType"),
        ([1.0, -1.0], "list"),
        (np.array([np.nan, 0.0]), "nan"),
        (np.zeros(3), "ndarray"),
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
