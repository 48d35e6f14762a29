"""Plans: against closed forms, against the tables of stopping, and in units that cannot mislead."""

import numpy as np
import pytest
from closeness import assert_close

from rollwise.config import make_config
from rollwise.sampling import Balanced, PositiveFocused, Rounds
from rollwise.sampling.stopping import Stopping
from rollwise.simulate.engine import Lengths
from rollwise.simulate.pass_rates import RatedPrompt, spread_pass_rates
from rollwise.simulate.planning import Prices, simulate_steps
from rollwise.simulate.steps import Mean, summarize

TEN = Prices(Lengths(median=10, sigma=0.0, longest=100), slots=16, seconds_per_token=0.5)
"""Each response takes 10 tokens and 5 seconds."""


def all_at(rate, prompts=64):
    return [RatedPrompt(str(i), rate) for i in range(prompts)]


def config_of(prompts=64, **settings):
    return make_config({"method": "reinforce_ada", "prompts": {"batch_size": prompts}, **settings})


def count_of(samples):
    return {"method": "grpo", "exit": {"samples": samples}}


@pytest.mark.parametrize("scale", [False, True])
def test_what_a_fixed_count_costs_and_teaches_can_be_counted(scale):
    """64 prompts · 4 draws · 10 tokens in 16 slots: 16 rounds of 5 seconds.

    With A = r − r̄, E Σ A(r − p) = E Σ A² = (n − 1)·p(1 − p) a group, so the signal is 64 · 3 · ¼ =
    48. Dividing the advantages of each group by its standard deviation makes them unlike, which
    costs a little.
    """
    settings = {**count_of(4), "advantage": {"objective": "grpo", "scale_by_std": scale}}
    steps = simulate_steps(config_of(**settings), all_at(0.5), TEN, 40)
    assert {(s["prompts"], s["draws"], s["tokens"]) for s in steps} == {(64, 256, 2560)}
    # Groups of one reward teach nothing.
    assert_close(
        [s["trained"] for s in steps], [256 * (1 - s["zero_variance_after"]) for s in steps]
    )
    assert_close([s["seconds"] for s in steps], [80.0] * 40)
    plan = summarize(steps)
    # Four draws of p = ½ are alike with probability 2/16.
    for name in ("zero_variance_first", "zero_variance_after"):
        assert abs(plan[name].value - 0.125) < 4 * np.sqrt(0.125 * 0.875 / (64 * 40))
    signal = plan["signal"]
    assert signal.error < 0.8
    assert 44 < signal.value < 48 if scale else abs(signal.value - 48) < 4 * signal.error


def test_a_perfect_baseline_has_the_variance_of_every_response():
    """A = r − p: M = N² = Σ (r − p)², which is p(1 − p) a response on average.

    The belief that all prompts have one pass rate is nearly perfect here.
    """
    nearly_sure = {"initial_variance": 1e-4, "noise": 0.0, "drift_gain": 0.02}
    settings = {
        "belief": nearly_sure,
        "prompts": {"type": "worth", "batch_size": 64},
    }
    steps = simulate_steps(make_config(settings), all_at(0.3), TEN, 80)[40:]
    plan = summarize(steps)
    assert abs(plan["signal"].value - 64 * 0.21) < 4 * plan["signal"].error
    assert plan["movement"].value == pytest.approx(64 * 0.21, rel=0.05)


@pytest.mark.parametrize(
    ("section", "rule"),
    [
        ({"type": "balanced"}, Balanced(2, 2)),
        ({"type": "positive_focused", "positives": 1}, PositiveFocused(1)),
    ],
)
def test_draws_are_those_that_the_tables_of_stopping_expect(section, rule):
    """Pass rates that are uniform on [0, 1] are the flat prior of the tables."""
    schedule = Rounds(size=4, rounds=6)
    config = config_of(128, exit=section, schedule={"size": 4, "rounds": 6})
    found = summarize(simulate_steps(config, spread_pass_rates(1, 1, 128), TEN, 8))["draws"]
    expected = 128 * Stopping(rule, schedule, schedule.max_samples).expected_draws[0, 0]
    assert found.error < 0.03 * expected
    assert abs(found.value - expected) < 4 * found.error


def test_dropped_groups_are_no_signal():
    config = config_of(schedule={"size": 4, "rounds": 2})
    [step] = simulate_steps(config, all_at(1.0), TEN, 1)
    taught = [step[name] for name in ("trained", "movement", "noise", "signal")]
    assert (step["draws"], taught, step["zero_variance_after"]) == (64 * 8, [0] * 4, 1)


def test_rewards_of_a_plan_are_0_and_1_whatever_counts_as_correct_in_the_run():
    found = [
        simulate_steps(config_of(8, grading=grading), spread_pass_rates(2, 2, 8), TEN, 2)
        for grading in ({}, {"positive_threshold": -1.0})
    ]
    assert found[0] == found[1]


def test_the_error_of_a_mean_and_of_a_ratio():
    mean = Mean.of([1.0, 2.0, 3.0])
    assert_close([mean.value, mean.error], [2.0, 1 / np.sqrt(3)])
    rng = np.random.default_rng(0)
    below = rng.normal(10, 1, (4000, 50))
    above = 2 * below + rng.normal(0, 1, (4000, 50))
    found = [Mean.of(a, b) for a, b in zip(above, below, strict=True)]
    spread = np.std([ratio.value for ratio in found])
    assert abs(np.mean([ratio.error for ratio in found]) / spread - 1) < 0.05
    assert_close(found[0].value, above[0].sum() / below[0].sum())
    assert np.isnan(Mean.of([2.0]).error)
