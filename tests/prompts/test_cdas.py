"""Both traces, the three forms, the warm-up, the settings."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.beliefs.ratings import logistic
from rollwise.prompts import CDAS
from rollwise.prompts.cdas import nearest_on_both_sides

# Six prompts, 8 responses each: the correct counts of three steps (arXiv 2505.17652, worked by
# hand from D ← ((t−1)/t)·D + (σ(C − D) − s)/t and C ← −mean D; after step 1, a: ½ − 8/8 = −½).
STEPS = [
    {"a": 8, "b": 4, "c": 0, "d": 6},
    {"a": 7, "c": 1, "e": 2, "f": 8},
    {"b": 5, "c": 0, "d": 8, "e": 3},
]
TRACES = {
    "paper": [
        ([-0.5, 0, 0.5, -0.25, 0, 0], 0.041667),
        ([-0.3714, 0, 0.381191, -0.25, 0.260415, -0.489585], 0.07823),
        ([-0.3714, -0.052726, 0.395738, -0.334336, 0.169997, -0.489585], 0.113719),
    ],
    "released_code": [
        ([-0.25, 0, 0.25, -0.125, 0, 0], 0.020833),
        ([-0.269234, 0, 0.272653, -0.125, 0.127604, -0.247396], 0.040229),
        ([-0.269234, -0.038315, 0.315028, -0.236262, 0.119459, -0.247396], 0.059453),
    ],
}
CHOSEN = {2: ["bc", "be", "be"], 4: ["bcef", "bcde", "bcde"]}


def tell(sampler, correct, drawn=8):
    sampler.tell(list(correct), list(correct.values()), [drawn] * len(correct))


@pytest.mark.parametrize("count", CHOSEN)
@pytest.mark.parametrize("form", TRACES)
def test_the_trace_of_difficulties_competence_and_choices(form, count):
    sampler = CDAS("abcdef", batch_size=count, form=form, warmup_epochs=0)
    for correct, trace, chosen in zip(STEPS, TRACES[form], CHOSEN[count], strict=True):
        tell(sampler, correct)
        np.testing.assert_allclose(sampler.difficulty, trace[0], rtol=0, atol=5.1e-7)
        assert sampler.competence == pytest.approx(trace[1], abs=5.1e-7)
        assert sampler.ask() == list(chosen)
        assert sampler.ask() == list(chosen)  # asking alone changes nothing
    sampler.difficulty[:] = 9  # a copy
    assert sampler.difficulty.max() < 1
    quantiles = [sampler.metrics()[f"difficulty_p{q}"] for q in (10, 50, 90)]
    assert quantiles == np.quantile(sampler.difficulty, [0.1, 0.5, 0.9]).tolist()
    assert CDAS("abcdef", 2).form == "paper"


few_values = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1e-300, -1e-300])
values_with_ties = st.lists(few_values | st.floats(-2, 2), min_size=1, max_size=60)


def by_sorting(values, centre, count, exclude):
    """The symmetric choice on plain sorted lists; equal values by index."""
    indices = [i for i in range(len(values)) if not exclude[i]]
    above = sorted((i for i in indices if values[i] > centre), key=lambda i: (values[i], i))
    below = sorted((i for i in indices if values[i] <= centre), key=lambda i: (-values[i], i))
    chosen = above[: count // 2] + below[: count - count // 2]
    rest = above[count // 2 :] + below[count - count // 2 :]  # of one side only, if it is needed
    return sorted(chosen + rest[: count - len(chosen)])


@given(values=values_with_ties, centre=few_values | st.floats(-2, 2), data=st.data())
def test_the_symmetric_choice_is_that_of_sorting(values, centre, data):
    count = data.draw(st.integers(0, len(values)))
    exclude = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    chosen = nearest_on_both_sides(np.array(values), centre, count, np.array(exclude))
    assert chosen.tolist() == by_sorting(values, centre, count, exclude)


@given(
    steps=st.lists(
        st.dictionaries(st.integers(0, 5), st.integers(0, 4), min_size=1), min_size=1, max_size=8
    ),
    delay=st.sampled_from([0, 1]),
)
def test_the_published_forms_against_plain_lists(steps, delay):
    """The update prompt by prompt."""
    sampler = CDAS(range(6), 2, form=["paper", "released_code"][delay])
    difficulty, visits, competence = [0.0] * 6, [0] * 6, 0.0
    for correct in steps:
        tell(sampler, correct, drawn=4)
        for i, positives in correct.items():
            visits[i] += 1
            t = visits[i] + delay
            gap = 1 / (1 + math.exp(difficulty[i] - competence)) - positives / 4
            difficulty[i] = (t - 1) / t * difficulty[i] + gap / t
        competence = -sum(difficulty) / 6
        np.testing.assert_allclose(sampler.difficulty, difficulty, rtol=0, atol=1e-12)
        assert sampler.competence == pytest.approx(competence, abs=1e-12)


@pytest.mark.parametrize("form", TRACES)
def test_expected_pass_rates_of_the_published_forms_at_rest(form):
    """Where every prompt always shows its pass rate, D settles and stands for that rate."""
    sampler = CDAS(range(9), 9, form=form)
    for _ in range(3000):
        sampler.tell(range(9), range(9), [8] * 9)
    rates = sampler.expected_pass_rates(range(9))
    np.testing.assert_allclose(rates, np.arange(9) / 8, atol=0.01)


def test_the_calibrated_update_by_hand():
    """D ← D + η(p − s), η = 4·max(1/t, .1); C ← C + η_C·mean(s − p), η_C = 2·max(1/tells, .1)."""
    sampler = CDAS("ab", 1, form="calibrated")
    sampler.tell(["a", "b"], correct=[2, 0], drawn=[8, 8])
    assert sampler.difficulty.tolist() == [4 * (0.5 - 0.25), 4 * (0.5 - 0.0)]
    assert sampler.competence == 2 * (-0.25 - 0.5) / 2
    p = 1 / (1 + math.exp(1.0 + 0.75))
    sampler.tell(["a"], correct=[8], drawn=[8])
    assert sampler.difficulty[0] == pytest.approx(1.0 + 2 * (p - 1))
    assert sampler.competence == pytest.approx(-0.75 + 1 * (1 - p))


@pytest.mark.parametrize("level", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("target", [0.25, 0.5, 0.8])
def test_the_calibrated_form_finds_the_target_at_any_level(level, target):
    """2,000 prompts of logit-normal pass rates around σ(level); 64 a step, 8 draws each."""
    rng = np.random.default_rng(7)
    rates = logistic(rng.normal(level, 2.0, 2000))
    sampler = CDAS(range(2000), 64, form="calibrated", target=target)
    shown = []
    for _ in range(100):
        batch = sampler.ask()
        sampler.tell(batch, rng.binomial(8, rates[batch]), [8] * 64)
        shown.append(rates[batch].mean())
    assert np.mean(shown[40:]) == pytest.approx(target, abs=0.08)
    expected = sampler.expected_pass_rates(range(2000))
    assert np.mean(np.abs(expected - rates)) < 0.15


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_warm_up_shows_each_prompt_once(epochs):
    sampler = CDAS(range(20), 4, warmup_epochs=epochs)
    for _ in range(epochs):
        seen = []
        for _ in range(5):
            assert sampler.metrics()["warming_up"] == 1
            seen += sampler.ask()
            sampler.tell(seen[-4:], [1] * 4, [4] * 4)
        assert sorted(seen) == list(range(20)) != seen
    assert (sampler.metrics()["warming_up"], sampler.metrics()["visited"]) == (0, 1)


def test_the_last_batch_of_the_warm_up_is_filled_by_difficulty():
    sampler, seen = CDAS(range(10), 4), []
    for _ in range(2):
        seen += sampler.ask()
        sampler.tell(seen[-4:], [4] * 4, [4] * 4)  # solved: far below C, but for one prompt
    sampler.tell([seen[0]], [0], [4])
    last = sampler.ask()
    assert set(last[:2]) == set(range(10)) - set(seen)
    assert seen[0] in last[2:] and len(set(last)) == 4


def test_prompts_told_by_others_are_warmed_up():
    """They are passed over; an epoch of which nothing is left is over."""
    sampler, other = CDAS("abcdef", 2), CDAS("abcdef", 2)
    for each in (sampler, other):
        tell(each, STEPS[0])
    assert sorted(sampler.ask()) == ["e", "f"]
    tell(other, STEPS[1])
    assert other.ask() == ["b", "e"]
    assert other.metrics()["warming_up"] == 0
