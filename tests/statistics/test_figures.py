"""What responses say at every k, with intervals: golden values, bounds, what holds by design."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rollwise.config import make_config
from rollwise.statistics import ProblemResult, compare, evaluation, figures_of, steps_of_k
from rollwise.statistics.answers import final_answers
from rollwise.statistics.estimates import Estimate, mean_over_problems, paired_difference
from rollwise.statistics.figures import majority_at_k, tables_of


def answers_of(responses, grader):
    return final_answers(responses, make_config({"grading": {"type": grader}}).grading)


def result(correct, answers=None, key="p", **more):
    """`"1101"` is right, right, wrong, right."""
    return ProblemResult(key, np.array([c == "1" for c in correct]), answers, **more)


def majority(found, k, seed=0):
    return majority_at_k(found, k, np.random.default_rng(seed))


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


def test_the_difference_of_pairs_is_narrower_than_that_of_strangers():
    """A model that is better by 0.1 on each of a hundred problems of any difficulty."""
    rng = np.random.default_rng(0)
    first_P = rng.uniform(0, 0.9, 100)
    second_P = first_P + 0.1 + rng.normal(0, 0.01, 100)
    found = paired_difference(second_P, first_P)
    assert found.low < 0.1 < found.high
    assert found.high - found.low < 0.01
    assert paired_difference(first_P, second_P).value == -found.value


def test_no_difference_on_few_problems_is_not_certain():
    """With none of 10 different, (1 − u)^10 = 0.025."""
    found = paired_difference(np.full(10, 0.3), np.full(10, 0.3))
    u = 1 - 0.025 ** (1 / 10)
    assert (found.value, found.low, found.high) == pytest.approx((0, -u, u))
    best = paired_difference(np.ones(10), np.zeros(10))
    assert (best.low, best.high) == pytest.approx((1 - 2 * u, 1))


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
        (r"so \boxed{1} no, \boxed{\dfrac{1}{2} }.", r"\frac{1}{2}"),
        (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"(3,\frac{\pi}{2})"),
        ("It is $x^2$, hence 1,234.", "1,234"),
        ("First 12, then $a + b$.", "a+b"),
        (r"never closed \boxed{7", "7"),
        ("I do not know", ""),
        ("", ""),
    ],
)
def test_the_final_answer_of_mathematics(response, answer):
    assert answers_of([response], "math") == [answer]


def test_the_final_answer_of_other_graders():
    assert answers_of(["7 12=6 ", "none"], "exact") == ["6", "none"]
    assert answers_of(["def f(): ..."], "code") is None


def test_finding_the_answer_takes_linear_time():
    """Hostile responses of a megabyte; anything quadratic would take hours."""
    for hostile in (r"\boxed{" * 150_000, "$" * 10**6, "1" * 10**6, "1,/." * 250_000, "{" * 10**6):
        assert len(answers_of([hostile], "math")) == 1


@pytest.mark.parametrize("count", [1, 10, 256])
def test_problems_of_one_value_have_the_binomial_interval(count):
    """Clopper and Pearson: with no success in n, (1 − high)^n = 0.025."""
    bound = 1 - 0.025 ** (1 / count)
    wrong, right = mean_over_problems(np.zeros(count)), mean_over_problems(np.ones(count))
    assert (wrong.value, wrong.low, wrong.high) == pytest.approx((0, 0, bound))
    assert (right.value, right.low, right.high) == pytest.approx((1, 1 - bound, 1))
    exact = stats.binomtest(count, 4 * count).proportion_ci(method="exact")
    assert mean_over_problems([0.25] * 4 * count) == Estimate(0.25, exact.low, exact.high)


def test_the_interval_holds_the_truth_19_times_in_20():
    """Pass rates by Beta(½, ½), mean ½; 8 responses to each of 60 problems.

    Responses to one problem go together: an interval that took all 480 as independent would be
    half as wide, and hold the truth 2 times in 3.
    """
    rng = np.random.default_rng(0)
    rates_EP = rng.beta(0.5, 0.5, (200, 60))
    correct_EP = rng.binomial(8, rates_EP)
    found = [mean_over_problems(correct_P / 8, seed=e) for e, correct_P in enumerate(correct_EP)]
    held = np.mean([estimate.low <= 0.5 <= estimate.high for estimate in found])
    assert 0.9 <= held <= 0.98


def test_the_figures_of_known_counts():
    """avg@4 = (0 + 1 + 2 + 4) / 16; at least one of four is right for three of four problems."""
    found = evaluation([0, 1, 2, 4], k=4)
    assert [found[name]["value"] for name in ("avg@4", "pass@4")] == [7 / 16, 3 / 4]
    assert found["avg@4"]["low"] < 7 / 16 < found["avg@4"]["high"]
    lost = evaluation([0, 1, 2, 1], 4, drawn=[4, 4, 2, 1])
    assert [lost[name]["value"] for name in ("avg@4", "pass@4")] == [9 / 16, 3 / 4]
    assert str(Estimate(0.5, 0.4021, 0.5979)) == "0.500 [0.402, 0.598]"
