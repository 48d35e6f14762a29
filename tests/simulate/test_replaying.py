"""Replays of recorded rewards: what can be counted by hand, and differences that are paired."""

import numpy as np
import pytest

from rollwise.config import make_config
from rollwise.simulate.recorded import Recorded, RecordedPrompt
from rollwise.simulate.replaying import compare_replays, replay


def prompts_of(*counts, drawn=8, tokens=10):
    """A prompt for each number of correct responses, among `drawn` that come incorrect first."""
    return [
        RecordedPrompt(
            f"{number}-{correct}",
            Recorded(np.repeat([0.0, 1.0], [drawn - correct, correct]), np.full(drawn, tokens)),
        )
        for number, correct in enumerate(counts)
    ]


def config_of(batch=4, seed=0, **settings):
    return make_config(
        {"method": "reinforce_ada", "prompts": {"batch_size": batch}, "seed": seed, **settings}
    )


def count_of(samples):
    return {"method": "grpo", "exit": {"samples": samples}}


SINGLE = {"method": "single", "prompts": {"type": "uniform"}}
BALANCED = {"method": "reinforce_ada", "schedule": {"type": "rounds", "size": 2, "rounds": 8}}


def test_a_replay_of_all_that_is_recorded_can_be_counted():
    """Eight prompts in two steps, all eight responses of each; two prompts are uniform.

    With A = r − r̄ and p = r̄, M = N² = Σ (r − r̄)²: 8 · p(1 − p) a prompt.
    """
    prompts = prompts_of(0, 8, 4, 4, 4, 4, 2, 2)
    settings = {**count_of(8), "advantage": {"objective": "grpo", "scale_by_std": False}}
    found = replay(config_of(**settings), prompts)
    assert (found["prompts"], found["draws"], found["tokens"]) == (4, 32, 320)
    assert (found["zero_variance_first"], found["ran_out"]) == (0.25, 0)
    total = 4 * 8 * 0.25 + 2 * 8 * 0.25 * 0.75
    assert found["signal"] == pytest.approx(total / 2)
    assert found["signal_per_1000_tokens"] == pytest.approx(1000 * total / 640)


def test_a_prompt_ends_where_it_runs_out():
    ended = replay(config_of(**BALANCED), prompts_of(0, 0, 4, 4))
    assert ended["ran_out"] == 0.5
    assert ended["draws"] <= 4 * 8


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "gvm"},
        {"method": "reinforce_ada_est", "prompts": {"type": "posterior", "batch_size": 4}},
        {"method": "reinforce_ada", "group": {"zero_variance": "refill"}},
        {**BALANCED, "schedule": {"type": "streamed"}},
        {"method": "single", "prompts": {"type": "worth", "batch_size": 4}},
    ],
)
def test_no_method_draws_more_than_is_recorded(settings):
    prompts = prompts_of(1, 2, 3, 4, 5, 6, 7, 8, drawn=8)
    found = replay(make_config({"prompts": {"batch_size": 4}, **settings}), prompts, steps=3)
    assert (
        1
        <= found["draws_per_prompt"]
        <= (8 if settings["method"] not in ("gvm", "reinforce_ada_est") else 16)
    )
    assert found["tokens"] == pytest.approx(10 * found["draws"])


def test_a_figure_that_some_replays_lack_is_left_out():
    """Zero variance, of a replay all of whose prompts had one correct response or none."""
    figures = {"signal_per_1000_tokens": 1.0, "zero_variance_first": 0.5}
    lacking = {"signal_per_1000_tokens": 2.0}
    replays = {"base": replays_of([1.0, 2.0]), "own": ([figures, figures], [figures, lacking])}
    found = compare_replays(replays, "base")["own"]
    assert found.means.keys() == found.differences.keys() == {"signal_per_1000_tokens"}


def replays_of(values, bootstrapped=None):
    """Replays by seed, whose signal has these values."""
    return tuple(
        [{"signal_per_1000_tokens": value} for value in found]
        for found in (values, bootstrapped or values)
    )


def test_differences_are_paired_and_spans_of_0_are_no_verdict():
    replays = {
        method: replays_of([10.0 * seed + more * (1 + 0.1 * seed) for seed in range(4)])
        for method, more in (("base", 0), ("more", 1), ("less", -1))
    }
    replays["noise"] = replays_of([10.0 * (3 - seed) for seed in range(4)])
    replays["more seeds"] = replays_of([10.0 * seed + 1 for seed in range(6)])
    found = compare_replays(replays, "base")
    verdicts = [found[name].verdict for name in replays]
    assert verdicts == ["", "more", "less", "not shown", "more"]
    assert found["more"].differences["signal_per_1000_tokens"].value == pytest.approx(1.15)
    assert found["more"].means["signal_per_1000_tokens"].value == pytest.approx(16.15)


def test_an_interval_is_that_of_bootstrapped_prompts():
    """Its half is t(0.975, 3) = 3.182 standard deviations of them, whose divisor is B − 1."""
    found = compare_replays({"a": replays_of([5.0] * 4, [4.0, 5.0, 6.0, 9.0])}, "a")
    interval = found["a"].means["signal_per_1000_tokens"]
    assert interval.value == 5
    assert interval.high - 5 == pytest.approx(3.182446 * np.sqrt(14 / 3))
    alone = compare_replays({"a": replays_of([5.0])}, "a")["a"].means["signal_per_1000_tokens"]
    assert (alone.low, alone.high) == (5, 5)
