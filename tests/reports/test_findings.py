"""What the report warns of: each from metrics in which it happens at a known step."""

import re
from dataclasses import asdict

import pytest

from rollwise.config import make_config
from rollwise.records import flatten
from rollwise.reports.charts import described
from rollwise.reports.findings import findings, passed

CONFIG = asdict(make_config({"method": "reinforce_ada"}))


def run(steps=60, **figures):
    """Metrics of a sound run, with figures as functions of the step."""
    sound = {
        "draws": 100,
        "reward": lambda step: 0.4,
        "entropy": lambda step: 0.5,
        "clip_fraction": lambda step: 0.01,
        "truncated": lambda step: 0.02,
        "belief_skill": lambda step: 0.3,
        "zero_variance_after": lambda step: 0.1,
    }
    made = sound | figures
    return [
        {"step": step} | {name: of(step) if callable(of) else of for name, of in made.items()}
        for step in range(1, steps + 1)
    ]


def found(lines, config=CONFIG):
    return {each.title: each for each in findings(lines, config)}


@pytest.mark.parametrize(
    "lines",
    [
        run(),
        run(truncated=0.4),  # as many as at the beginning
        run(truncated=lambda step: 0.5 if step < 30 else 0.02),  # a trend that has ended
        run(steps=9, clip_fraction=0.9),  # too few steps for a trend
        [{"step": step, "draws": 4, "reward": 0.5} for step in range(1, 40)],
        run(belief_skill=-0.5, visited=lambda step: min(1.0, step / 80)),  # not all were visited
        run(grader_failures=lambda step: int(step == 7)),  # 1 of 6,000
        run(belief_skill=lambda step: -2.18 if step == 1 else 0.01),  # before anything was learned
        run(policy_change=0.002),
        run(steps=19, policy_change=1e-6),
    ],
)
def test_what_is_sound_or_not_known_is_no_warning(lines):
    assert findings(lines, CONFIG) == []
    single = {"group": {"size": 1}, "advantage": {"baseline": "belief"}}  # without any variance
    assert findings([line | {"zero_variance_after": 1.0} for line in lines], CONFIG | single) == []


@pytest.mark.parametrize(
    ("title", "name", "before", "after", "since"),
    [
        # The mean of 10 steps is below half of 0.4 once 6 of them are 0.05: 4·0.4 + 6·0.05 < 2.
        ("Reward has collapsed", "reward", 0.4, 0.05, 36),
        # Below 0.1 · 0.5 once all of 10 are 0.04: one of 0.5 makes the mean 0.086.
        ("Entropy is collapsing", "entropy", 0.5, 0.04, 40),
        # Above 3 · 0.5 once 3 of 10 are 4: 1.55.
        ("Entropy is rising", "entropy", 0.5, 4.0, 33),
        # Above 0.2 once 4 of 10 are 0.6.
        ("High clip fraction", "clip_fraction", 0.0, 0.6, 34),
        # Above 0.05 and five times 0.008 once 6 of 10 are 0.08 and 4 are 0.008: 0.0512.
        ("Clip fraction has jumped", "clip_fraction", 0.008, 0.08, 36),
        # Above 0.1 once 3 of 10 are 0.4 and 7 are 0.02: 0.134.
        ("Many responses are truncated", "truncated", 0.02, 0.4, 33),
        # Below 0 once 5 of 10 are −0.4 and 5 are 0.3.
        ("Beliefs are stale", "belief_skill", 0.3, -0.4, 35),
        # Above 0.5 once 6 of 10 are 0.8 and 4 are 0.1: 0.52.
        ("Most groups have zero variance", "zero_variance_after", 0.1, 0.8, 36),
        ("Responses are off-policy", "importance_truncated", 0.0, 0.11, 35),
        ("Engine and learner disagree", "sampler_gap", 0.0, -0.21, 35),
    ],
)
def test_a_trend_is_found_since_the_step_where_its_mean_crosses(title, name, before, after, since):
    lines = run(**{name: lambda step: after if step > 30 else before})
    (only,) = findings(lines, CONFIG)
    assert (only.title, only.step) == (title, since)
    assert only.what and only.advice


@pytest.mark.parametrize(
    ("lines", "title", "since"),
    [
        (run(truncated=0.6), "Many responses are truncated", 10),  # from the beginning
        (run(policy_change=1e-5), "The policy hardly moves", 20),
        # Beliefs are not judged before the prompts were visited.
        (run(belief_skill=-0.5, visited=lambda step: step / 40), "Beliefs are stale", 40),
        (run(steps=7, trained_groups=lambda step: max(0, 5 - step)), "No group is trained on", 5),
    ],
)
def test_what_lasts_is_found_since_the_first_step_of_it(lines, title, since):
    assert found(lines)[title].step == since
    assert found(lines[:6]) == {}


def test_a_warning_has_its_figures():
    clipped = found(run(clip_fraction=lambda step: 0.04 if step < 20 else 0.6))
    assert clipped["High clip fraction"].what.startswith(
        "60 % of the tokens are clipped and get no gradient"
    )
    jumped = found(run(clip_fraction=lambda step: 0.008 if step < 20 else 0.08))
    said = "8.0 % of the tokens are clipped; at the beginning 0.8 % were."
    assert jumped["Clip fraction has jumped"].what.startswith(said)
    fallen = found(run(reward=lambda step: 0.4 if step < 20 else 0.1))
    assert fallen["Reward has collapsed"].what == "It is 0.100; it was 0.400."


def evaluated(avg, passed):
    """Metrics of evaluations with these figures, each ± 0.05."""
    return [
        {
            "step": 10 * place,
            "heldout": {
                name: {"value": value, "low": value - 0.05, "high": value + 0.05}
                for name, value in (("avg@8", first), ("pass@8", second))
            },
        }
        for place, (first, second) in enumerate(zip(avg, passed, strict=True))
    ]


@pytest.mark.parametrize(
    ("avg", "passed", "title", "since"),
    [
        ((0.3, 0.6, 0.52, 0.4, 0.3), [0.8] * 5, "Held-out accuracy has fallen", 30),
        ((0.3, 0.6, 0.5, 0.4), (0.8, 0.8, 0.7, 0.6), "Held-out accuracy has fallen", 30),
        ((0.3, 0.4, 0.5, 0.6), (0.8, 0.75, 0.66, 0.6), "Held-out pass@k has fallen", 20),
        ((0.5, 0.5, 0.47, 0.46), (0.8, 0.75, 0.66, 0.6), "", 0),  # avg@8 has fallen too
        ((0.3, 0.6, 0.52), (0.8, 0.75, 0.72), "", 0),  # the intervals meet
    ],
)
def test_held_out_figures_that_surely_fell_are_found_where_they_did(avg, passed, title, since):
    found = [(each.title, each.step) for each in findings(evaluated(avg, passed), CONFIG)]
    assert found == ([(title, since)] if title else [])


def test_a_policy_that_moves_little_and_learns_is_no_finding():
    lines = run(policy_change=1e-4)
    assert found(evaluated([0.3, 0.3], [0.8, 0.8]) + lines)
    assert found(evaluated([0.3, 0.5], [0.8, 0.8]) + lines) == {}


def test_what_is_set_already_is_not_advised():
    lines = run(belief_skill=-0.4, zero_variance_after=0.8)
    other = {"method": "mopps", "belief": {"type": "logit_kalman"}}
    tracked = asdict(make_config(other))
    for config, name, kept in (
        (CONFIG, '`belief.type = "logit_kalman"`', '`method = "reinforce_ada"`'),
        (tracked, '`method = "reinforce_ada"`', "logit_kalman"),
    ):
        advice = " ".join(each.advice for each in findings(lines, config))
        assert name in advice and kept not in advice
        assert "`prompts.type`" in advice and "`belief.features`" in advice


def test_failures_are_found_at_the_first_one():
    lines = run(
        grader_failures=lambda step: 40 if step == 7 else 20 if step == 12 else 0,
        lost_draws=lambda step: 60 if step == 9 else 0,
        skipped_updates=lambda step: int(step == 50),
        unanswered=lambda step: 50 if step > 1 else 90,
    )
    every = found(lines)
    steps = {title: each.step for title, each in every.items()}
    assert steps.pop("Responses have no answer") == 1
    assert "in 3,040 of 6,000" in every["Responses have no answer"].what
    assert steps == {"The grader fails": 7, "Draws are lost": 9, "Updates are skipped": 50}
    assert "failed on 60 of 6,000 responses" in every["The grader fails"].what


def test_what_was_warned_of_and_is_over_is_known_with_its_first_step():
    lines = run(belief_skill=lambda step: -0.5 if step < 20 else 0.3)
    assert findings(lines, CONFIG) == []
    assert [(each.title, each.step) for each in passed(lines, CONFIG, [])] == [
        ("Beliefs are stale", 10)
    ]
    lasting = run(belief_skill=-0.5)
    assert passed(lasting, CONFIG, findings(lasting, CONFIG)) == []


def test_the_settings_that_are_named_exist():
    methods = {}, {"method": "reinforce_ada"}
    known = {name for given in methods for name in flatten(asdict(make_config(given)), ".")}
    advice = " ".join(text["advice"] for text in described("findings").values())
    named = set(re.findall("`([a-z_]+[.][a-z_]+)(?: = [^`]*)?`", advice))
    assert "learner.learning_rate" in named
    assert named <= known
