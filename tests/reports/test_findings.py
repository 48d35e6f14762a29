"""What the report warns of: each from metrics in which it happens at a known step."""

import re

import pytest

from rollwise.config import make_config
from rollwise.records import flatten
from rollwise.reports.charts import described
from rollwise.reports.findings import findings

CONFIG = make_config({"exit": {"type": "balanced"}}).model_dump(mode="json")


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
    ],
)
def test_what_is_sound_or_not_known_is_no_warning(lines):
    assert findings(lines, CONFIG) == []


@pytest.mark.parametrize(
    ("title", "name", "before", "after", "since"),
    [
        # The mean of 10 steps is below half of 0.4 once 6 of them are 0.05: 4·0.4 + 6·0.05 < 2.
        ("Reward has collapsed", "reward", 0.4, 0.05, 36),
        # Below 0.1 · 0.5 once all of 10 are 0.04: one of 0.5 makes the mean 0.086.
        ("Entropy is falling away", "entropy", 0.5, 0.04, 40),
        # Above 3 · 0.5 once 3 of 10 are 4: 1.55.
        ("Entropy is rising", "entropy", 0.5, 4.0, 33),
        # Above 0.2 once 4 of 10 are 0.6.
        ("Much is clipped", "clip_fraction", 0.0, 0.6, 34),
        # Above 0.05 and five times 0.008 once 6 of 10 are 0.08 and 4 are 0.008: 0.0512.
        ("Clipping has jumped", "clip_fraction", 0.008, 0.08, 36),
        # Above 0.1 once 3 of 10 are 0.4 and 7 are 0.02: 0.134.
        ("Many responses are cut", "truncated", 0.02, 0.4, 33),
        # Below 0 once 5 of 10 are −0.4 and 5 are 0.3.
        ("Beliefs are stale", "belief_skill", 0.3, -0.4, 35),
        # Above 0.5 once 6 of 10 are 0.8 and 4 are 0.1: 0.52.
        ("Most groups teach nothing", "zero_variance_after", 0.1, 0.8, 36),
        ("Responses are off-policy", "importance_truncated", 0.0, 0.11, 35),
        ("Engine and learner disagree", "sampler_gap", 0.0, -0.21, 35),
    ],
)
def test_a_trend_is_found_since_the_step_where_its_mean_crosses(title, name, before, after, since):
    lines = run(**{name: lambda step: after if step > 30 else before})
    (only,) = findings(lines, CONFIG)
    assert (only.title, only.step) == (title, since)
    assert only.what and only.advice


def test_a_warning_has_its_figures():
    clipped = found(run(clip_fraction=lambda step: 0.04 if step < 20 else 0.6))
    assert clipped["Much is clipped"].what.startswith("60 % of the tokens do not teach")
    jumped = found(run(clip_fraction=lambda step: 0.008 if step < 20 else 0.08))
    said = "8.0 % of the tokens are clipped, and 0.8 % at the beginning"
    assert jumped["Clipping has jumped"].what.startswith(said)
    fallen = found(run(reward=lambda step: 0.4 if step < 20 else 0.1))
    assert fallen["Reward has collapsed"].what == "It is 0.100, and was 0.400."


def test_most_responses_cut_from_the_beginning_are_found():
    assert found(run(truncated=0.6))["Many responses are cut"].step == 10


def test_beliefs_are_not_judged_before_the_prompts_were_visited():
    later = run(belief_skill=-0.5, visited=lambda step: min(1.0, step / 40))
    assert found(later)["Beliefs are stale"].step == 40


def test_single_responses_are_not_blamed_for_having_no_variance():
    single = {"group": {"size": 1}, "advantage": {"baseline": "belief"}}
    assert findings(run(zero_variance_after=1.0), CONFIG | single) == []


def test_held_out_accuracy_that_surely_fell_is_found_where_it_did():
    def at(step, value):
        around = {"value": value, "low": value - 0.05, "high": value + 0.05}
        return {"step": step, "heldout": {"avg@8": around}}

    lines = [at(10 * place, value) for place, value in enumerate((0.3, 0.6, 0.52, 0.4, 0.3))]
    (only,) = findings(lines, CONFIG)
    assert (only.title, only.step) == ("Held-out accuracy has fallen", 30)
    assert findings(lines[:3], CONFIG) == []  # the intervals meet


def test_failures_are_found_at_the_first_one():
    lines = run(
        grader_failures=lambda step: 40 if step == 7 else 20 if step == 12 else 0,
        lost_draws=lambda step: 60 if step == 9 else 0,
        skipped_updates=lambda step: int(step == 50),
    )
    every = found(lines)
    steps = {title: each.step for title, each in every.items()}
    assert steps == {"The grader fails": 7, "Draws are lost": 9, "Updates are skipped": 50}
    assert "failed on 60 of 6,000 responses" in every["The grader fails"].what


def test_the_settings_that_are_named_exist():
    methods = {}, {"exit": {"type": "balanced"}}
    known = {name for given in methods for name in flatten(make_config(given).model_dump(), ".")}
    advice = " ".join(text["advice"] for text in described("findings").values())
    named = set(re.findall("`([a-z_]+[.][a-z_]+)(?: = [^`]*)?`", advice))
    assert "learner.learning_rate" in named
    assert named <= known


def test_steps_that_train_on_no_group_are_found_since_the_first_of_them():
    lines = run(steps=7, trained_groups=lambda step: 0 if step > 4 else 5)
    assert found(lines)["No group is trained on"].step == 5
    assert found(lines[:6]) == {}
