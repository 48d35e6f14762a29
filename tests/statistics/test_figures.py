"""What responses say at every k, with intervals: golden values, bounds, what holds by design."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from rollwise.config import make_config
from rollwise.statistics import (
    ProblemResult,
    compare,
    evaluation,
    figures_of,
    final_answers,
    steps_of_k,
    with_votes,
)
from rollwise.statistics.estimates import Estimate, mean_over_problems, paired_difference
from rollwise.statistics.figures import majority_at_k, tables_of

EXACT, MATH, CODE = (
    make_config({"grading": {"type": kind}}).grading for kind in ("exact", "math", "code")
)


def result(correct, answers=None, key="p", **more):
    """`"1101"` is right, right, wrong, right."""
    return ProblemResult(key, np.array([c == "1" for c in correct]), answers, **more)


def majority(found, k, grading=EXACT):
    [voted] = with_votes([found], grading)
    return majority_at_k(voted, k, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("samples", "ks"), [(1, [1]), (2, [1, 2]), (12, [1, 2, 4, 8, 12]), (16, [1, 2, 4, 8, 16])]
)
def test_k_doubles_up_to_the_samples(samples, ks):
    assert steps_of_k(samples) == ks


def test_the_figures_of_four_known_problems():
    """2 of 4 right: pass@2 = 1 − C(2,2)/C(4,2) = 5/6, all correct 1/6, all wrong 1/6."""
    found = figures_of([result("1100"), result("1111"), result("0000"), result("1010")], 4)
    assert found["avg@4"].value == pytest.approx((0.5 + 1 + 0 + 0.5) / 4)
    assert found["pass@1"].value == found["avg@4"].value
    assert found["pass@2"].value == pytest.approx((5 / 6 + 1 + 0 + 5 / 6) / 4)
    assert found["all_correct@2"].value == pytest.approx((1 / 6 + 1 + 0 + 1 / 6) / 4)
    assert found["all_wrong@2"].value == pytest.approx((1 / 6 + 0 + 1 + 1 / 6) / 4)
    assert found["pass@4"].value == 3 / 4
    assert not any(name.startswith("maj") for name in found)  # answers are not known
    lost = figures_of([result("1100"), result("11")], 4)  # the second has two draws less
    assert (lost["avg@4"].value, lost["pass@4"].value) == (0.75, 1.0)
    assert lost["pass@2"].value == pytest.approx((5 / 6 + 1) / 2)


@pytest.mark.parametrize(
    ("correct", "answers", "k", "share"),
    [
        # The most frequent answer wins although most responses are wrong.
        ("11000", ["6", "6.0", "5", "4", ""], 5, 1.0),
        ("11000", ["6", "6.0", "5", "4", ""], 1, 2 / 5),
        # A tie is broken by chance, and silence votes for nothing.
        ("10", ["6", "5"], 2, 0.5),
        ("10", ["6", ""], 2, 1.0),
        ("000", ["", "", ""], 3, 0.0),
        ("000", ["", "", ""], 2, 0.0),
        ("1000", ["6", "5", "4", "3"], 4, 0.25),
    ],
)
def test_the_majority_by_hand(correct, answers, k, share):
    assert majority(result(correct, answers), k) == share


@given(
    st.lists(st.sampled_from(["right", "a", "b", ""]), min_size=3, max_size=7),
    st.integers(2, 5),
)
def test_the_majority_is_the_mean_over_all_subsets(said, k):
    k = min(k, len(said))
    found = result("".join("1" if s == "right" else "0" for s in said), said)

    def share(votes):
        counts = {vote: votes.count(vote) for vote in votes if vote}
        top = [vote for vote in counts if counts[vote] == max(counts.values())]
        return ("right" in top) / len(top) if top else 0.0

    exact = np.mean([share(list(subset)) for subset in itertools.combinations(said, k)])
    assert majority(found, k) == pytest.approx(exact)


def test_of_many_subsets_some_are_taken_by_chance():
    """8 of 16 right against one wrong answer: by symmetry ½, within four standard errors."""
    found = result("10" * 8, ["6", "5"] * 8)
    assert majority(found, 5) == pytest.approx(0.5, abs=4 * 0.5 / 400**0.5)
    assert majority(found, 5) == majority(found, 5)


def test_tables_are_by_what_problems_differ_in():
    results = [
        result("11", level=10, subject="sums"),
        result("10", level=2, subject="sums"),
        result("00", level=2),
    ]
    tables = tables_of(results)
    assert list(tables) == ["level"]
    assert list(tables["level"]) == ["2", "10"]
    assert tables["level"]["2"]["problems"] == 2
    assert tables["level"]["2"]["avg"].value == 0.25


def test_no_difference_on_few_problems_is_not_certain():
    """With none of 10 different, (1 − u)^10 = 0.025."""
    found = paired_difference(np.full(10, 0.3), np.full(10, 0.3))
    u = 1 - 0.025 ** (1 / 10)
    assert (found.value, found.low, found.high) == pytest.approx((0, -u, u))
    best = paired_difference(np.ones(10), np.zeros(10))
    assert (best.low, best.high) == pytest.approx((1 - 2 * u, 1))
    one = paired_difference(np.arange(10) == 0, np.zeros(10))
    assert one.low < 0 and one.high > u


@pytest.mark.parametrize("size", [1.0, 0.25])
def test_a_difference_is_shown_where_the_exact_test_shows_it(size):
    """McNemar's test, or the sign test: 4 better of 30 and none worse has p = 0.125."""
    rng = np.random.default_rng(0)
    for better, worse in [(4, 0), (5, 0), (6, 0), (8, 1), (9, 1), (10, 2), (12, 3), (15, 5)]:
        signs_P = rng.permutation(np.repeat([1, -1, 0], [better, worse, 30 - better - worse]))
        found = paired_difference(size * (signs_P > 0), size * (signs_P < 0))
        p = stats.binomtest(better, better + worse).pvalue
        assert (found.verdict("shown", "worse") == "shown") == (p < 0.05)


def test_equal_models_seldom_differ():
    """At most 5 % of differences are shown, for those that are symmetric and of several sizes."""
    rng = np.random.default_rng(0)
    shape = (150, 20)
    sizes = np.where(rng.random(shape) < 0.1, 1.0, rng.uniform(0, 0.3, shape))
    differences_EP = sizes * rng.choice([-1, 0, 1], shape)
    found = [paired_difference(np.maximum(d, 0), np.maximum(-d, 0)) for d in differences_EP]
    assert np.mean([each.verdict("shown", "shown") == "shown" for each in found]) <= 0.05


def test_a_comparison_is_of_the_problems_that_both_have():
    mine = [result("1100", key="a"), result("1111", key="b"), result("0000", key="c")]
    theirs = [result("1000", key="b"), result("11", key="a"), result("1111", key="d")]
    found = compare(mine, theirs)
    assert (found["problems"], found["more_often"], found["less_often"]) == (2, 1, 1)
    assert found["avg"].value == pytest.approx(((0.5 - 1) + (1 - 0.25)) / 2)
    assert found["pass@2"].value == pytest.approx(((5 / 6 - 1) + (1 - 0.5)) / 2)
    assert "pass@4" not in found  # one has two responses
    assert compare(mine, [result("1", key="z")]) == {"problems": 0}


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{\dfrac{1}{2} }.", r"\dfrac{1}{2}"),
        (r"either $\boxed{2}$ or $\boxed{-3}$", "2, -3"),
        ("<answer>7</answer>, in 12 steps", "7"),
        ("<think>12 steps", ""),
    ],
)
def test_the_final_answer_is_the_one_that_the_grader_finds(response, answer):
    assert final_answers([response], MATH) == [answer]


def test_the_final_answer_of_other_graders():
    assert final_answers(["7 12=6 ", "none"], EXACT) == ["6", "none"]
    assert final_answers(["def f(): ..."], CODE) is None
    unknown = result("10")
    assert with_votes([unknown], CODE) == [unknown]


def test_finding_the_answer_takes_linear_time():
    """Hostile responses of a megabyte; anything quadratic would take hours."""
    hostile = (r"\boxed{" * 150_000, "$" * 10**6, "1" * 10**6, "1,/." * 250_000, "{" * 10**6)
    answers = final_answers([*hostile, " 1" * 10**6 + "$", "answer: " * 10**5], MATH)
    [voted] = with_votes([result("1000000", answers)], MATH)
    assert len(voted.votes) == 7


def test_equal_answers_vote_together():
    """Four of six responses have the same wrong answer, and two the right one."""
    halves = ["0.5", r"\frac12", "1/2", r"\frac{1}{2}"]
    assert majority(result("000011", [*halves, "3", "3"]), 6, MATH) == 0.0
    answers = ["x = 5", "5.0", r"\left(1, 2\right)", "(1,2)", "(2,1)", "1,000", "1000", "", "7"]
    found = with_votes([result("000000001", answers), result("00", halves[:2])], MATH)
    assert [each.votes.tolist() for each in found] == [[1, 1, 2, 2, 3, 4, 4, -1, 0], [1, 2]]
    # Too many of them: from the 17th most frequent on, answers are one only as the same text.
    many = [rf"\sqrt{{{n}}}" for n in range(2, 18)] * 2 + [r"\sqrt{4}", "2", r"\sqrt4", "9"]
    [voted] = with_votes([result("0" * 35 + "1", many)], MATH)
    assert voted.votes[2] == voted.votes[32] == 3 and voted.votes[33] == 17


def test_an_answer_that_takes_too_long_to_compare_is_one_of_its_own():
    grading = replace(MATH, timeout=0.4, workers=1)
    [voted] = with_votes([result("001", ["9^{9^{9^{9}}}", "x+1", "7"])], grading)
    assert voted.votes.tolist() == [1, 2, 0]


@pytest.mark.parametrize("count", [1, 10, 256])
def test_values_of_0_and_1_have_the_binomial_interval(count):
    """Clopper and Pearson 1934, from the beta distribution."""
    for correct in {0, 1, count // 3, count}:
        exact = stats.binomtest(correct, count).proportion_ci(method="exact")
        found = mean_over_problems(np.arange(count) < correct)
        expected = (correct / count, exact.low, exact.high)
        assert (found.value, found.low, found.high) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("values", [[], [0.5, 30.0], [float("nan")]])
def test_values_are_shares(values):
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got"):
        mean_over_problems(values)


@settings(max_examples=40)
@example([0] * 30, 0, 1)
@given(
    st.lists(st.integers(0, 32), min_size=1, max_size=40), st.integers(0, 39), st.integers(0, 32)
)
def test_the_interval_is_within_bounds_and_rises_with_every_count(correct, place, count):
    values = np.array(correct) / 32
    found = mean_over_problems(values)
    assert 0 <= found.low <= found.value <= found.high <= 1
    place %= len(values)
    values[place] = max(values[place], count / 32)
    raised = mean_over_problems(values)
    assert raised.low >= found.low - 1e-5
    assert raised.high >= found.high - 1e-5


@pytest.mark.parametrize(("problems", "mean", "concentration"), [(10, 0.05, 3), (30, 0.2, 0.3)])
def test_the_interval_holds_the_truth_19_times_in_20(problems, mean, concentration):
    """avg@32 of pass rates by a Beta distribution; a percentile bootstrap holds 78 and 92 %."""
    rng = np.random.default_rng(0)
    rates_EP = rng.beta(mean * concentration, (1 - mean) * concentration, (100, problems))
    found = [mean_over_problems(correct_P / 32) for correct_P in rng.binomial(32, rates_EP)]
    assert np.mean([each.low <= mean <= each.high for each in found]) >= 0.95
    assert np.mean([each.high - each.low for each in found]) < 0.37


def test_the_figures_of_known_counts():
    """avg@4 = (0 + 1 + 2 + 4) / 16; at least one of four is right for three of four problems."""
    found = evaluation([0, 1, 2, 4], k=4)
    assert [found[name]["value"] for name in ("avg@4", "pass@4")] == [7 / 16, 3 / 4]
    assert found["avg@4"]["low"] < 7 / 16 < found["avg@4"]["high"]
    lost = evaluation([0, 1, 2, 1], 4, drawn=[4, 4, 2, 1])
    assert [lost[name]["value"] for name in ("avg@4", "pass@4")] == [9 / 16, 3 / 4]
    assert str(Estimate(0.5, 0.4021, 0.5979)) == "0.500 [0.402, 0.598]"
