"""Mathematics: how answers may be written, and MATH-500."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwise.grading import MathGrader, mathematics
from rollwise.grading.answer_forms import bare_reference, number_of, tidied, values_of
from rollwise.grading.final_answers import (
    box_of,
    boxed,
    final_boxes,
    minerva_answer,
    plainly_different,
    plainly_equal,
)
from rollwise.grading.mathematics import last_answer, verify_answer, verify_math, verify_minerva
from rollwise.grading.worker_grader import NeedsWholeResponse, _LatestResults

MATH500 = Path(__file__).parents[3] / "shared" / "data" / "math500.jsonl"


@pytest.fixture(scope="module")
def grader():
    with MathGrader(timeout=20.0, workers=2) as grader:
        yield grader


@pytest.fixture(scope="module")
def plain():
    with MathGrader(timeout=20.0, workers=1, convention="math_verify") as grader:
        yield grader


@pytest.fixture(scope="module")
def math500():
    if not MATH500.exists():
        pytest.skip(f"needs the MATH-500 data at {MATH500}")
    return [json.loads(line) for line in MATH500.read_text().splitlines()]


def test_all_reference_solutions_of_math500_are_correct(grader, math500):
    assert len(math500) == 500
    solutions, answers = ([row[name] for row in math500] for name in ("solution", "answer"))
    rewards = grader.grade(solutions, answers)
    assert rewards.sum() == 500
    assert grader.failures == 0


def test_the_solutions_of_other_problems_are_incorrect(grader, math500):
    """Answers shifted by one; `x=5` after `5` is the same answer."""
    rows = math500[:200]
    answers = [row["answer"] for row in rows]
    shifted = answers[1:] + answers[:1]
    rewards = grader.grade([row["solution"] for row in rows], shifted)
    same = [
        a.removeprefix("x=") == b.removeprefix("x=") for a, b in zip(answers, shifted, strict=True)
    ]
    assert sum(same) < 10
    assert rewards[[not it for it in same]].sum() == 0


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$\boxed{0.5}$", r"\frac{1}{2}"),
        (r"$\boxed{0.5}$", "1/2"),
        (r"\boxed{\dfrac12}", r"$\frac{1}{2}$"),
        (r"The answer is $\frac{1}{2}$.", r"\boxed{\frac{1}{2}}"),
        (r"so \(\tfrac{2}{4}\)", r"$\boxed{\frac{1}{2}}$"),
        (r"$\frac12$", r"\(\frac{1}{2}\)"),
        (r"$\frac12$", r"\[\frac{1}{2}\]"),
        (r"$\boxed{3\sqrt{13}}$", r"3\sqrt{13}"),
        (r"$\boxed{\text{Evelyn}}$", "Evelyn"),
        (r"$\boxed{Evelyn}$", r"\text{Evelyn}"),
        (r"$\boxed{1234}$", "1,234"),
        (r"$\boxed{18}$", "$18"),
        (r"$\boxed{18}$", r"\$18"),
        (r"$\boxed{50\%}$", "50%"),
        (r"$\boxed{5}$", "the answer is $5$"),
        (
            r"\boxed{\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}}",
            r"\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}",
        ),
        ("first $3$, then 7", "7"),
    ],
)
def test_forms_of_one_answer(response, answer):
    assert verify_math(response, answer) == 1.0


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$\boxed{3}$", r"3\sqrt{13}"),  # what a bare answer would be read as
        (r"$\boxed{10}$", "10^{10}"),
        (r"$\boxed{3}$", "4"),
        (r"\boxed{" + "(" * 5000, "4"),
        ("I do not know", "4"),
        ("", "4"),
    ],
)
def test_incorrect_responses(response, answer):
    assert verify_math(response, answer) == 0.0


def test_an_answer_that_says_nothing_is_a_failure_not_an_incorrect_response(caplog):
    with MathGrader(workers=1) as grader:
        assert grader.grade(["3", "", "3"], ["", " ", "3"]).tolist() == [0.0, 0.0, 1.0]
        assert grader.failures == 2
    assert "nothing can be read from the reference answer ''" in caplog.text


def test_a_power_tower_ends_at_the_limit_and_costs_only_itself(caplog):
    responses = [
        r"$\boxed{9^{9^{9^{9}}}}$",
        r"$\boxed{3}$",
        r"$\boxed{(10^{10})!}$",
        r"$\boxed{4}$",
    ]
    with MathGrader(timeout=1.0, workers=1) as grader:
        assert grader.grade(responses, ["3"] * 4).tolist() == [0.0, 1.0, 0.0, 0.0]
        assert grader.failures == 2
        assert grader.grade(["3"], ["3"]).tolist() == [1.0]
    assert caplog.text.count("longer than 1 s") == 1


def test_what_the_limit_cannot_hold_is_not_begun():
    """Else this would take an hour, or the machine's memory."""
    bombs = ["(10^{30})!", "3^{10^{30}}", "(-2)^{10^{20}}"]
    with MathGrader(timeout=3600.0, workers=1) as grader:
        responses = [boxed(bomb) for bomb in [*bombs, "2^{10}"]]
        assert grader.grade(responses, ["3", "3", "3", "1024"]).tolist() == [0, 0, 0, 1]
        assert grader.failures == 3


def by_part(response, answer):
    """Grade as the grader does: by the box alone, where it takes one out."""
    content = box_of(response)
    if content is None:
        return verify_math(response, answer)
    try:
        verdict = mathematics._verify_part(mathematics._BOX + content, answer)
    except NeedsWholeResponse:
        return verify_math(response, answer)
    assert verdict == 1.0 or not plainly_equal(content, answer)
    assert verdict == 0.0 or not plainly_different(content, answer)
    return verdict


ANSWERS = (
    *("5", "12", "0.5", "50", "x+1", "[0,1)", "a=3", "]", "1,2", "3 is 4", "is 7", "7 [ 2", "{1}"),
    *(
        r"\frac{1}{2}",
        r"\dfrac{3}{4}",
        r"\text{Evelyn}",
        r"x \in [1,2]",
        r"\sqrt[3]{2}",
        "@#",
        "_{",
    ),
)
PIECES = (
    *("The answer is ", "the final answer is ", "Final answer: ", " final answer, which is ", "\n"),
    *(" I hope it is correct. ", " and ", ", ", "$", "$$", r"\(", r"\)", r"\[", r"\]", " [", "] "),
    *("%", " percent", r"\%", "x=", "12", "3.5 ", "$7$", r"\frac{1}{2}", "answer: ", "costs $5 "),
    *(". ", "}", "{", " is ", " is: ", r"\text{ cm}", r"\boxed{5}", r"\fbox{12}", "$a$ and "),
)
DELIMITERS = (("", ""), ("$", "$"), ("$$", "$$"), (r"\(", r"\)"), (r"\[", r"\]"), (" [", "] "))


@settings(max_examples=100, deadline=None)
@given(
    before=st.lists(st.sampled_from(PIECES), max_size=4).map("".join),
    content=st.sampled_from(ANSWERS),
    delimiters=st.sampled_from(DELIMITERS),
    after=st.lists(st.sampled_from(PIECES), max_size=2).map("".join),
    answer=st.sampled_from(("5", "12", r"\frac{1}{2}", "50", "7")),
)
def test_the_box_alone_gets_the_verdict_of_the_whole_response(
    before, content, delimiters, after, answer
):
    response = f"{before}{delimiters[0]}{boxed(content)}{delimiters[1]}{after}"
    for reference in {answer, content if content not in ("]", "@#", "_{") else answer}:
        assert by_part(response, reference) == verify_math(response, reference)


@pytest.mark.parametrize(
    "response",
    [
        r"$\boxed{3}$, so $\boxed{5}$",
        r"$\boxed{5}$ and 7",
        r"The final answer is $7$. I hope it is correct. \boxed{5}",
        r"final answer is $a$ and $x = \boxed{5}$",
        r"$\boxed{50}$ percent",
        r"$\boxed{50}\%$",
        r"$\fbox{3}, \boxed{5}$",
        r"\boxed{$5}$",
        r"\boxed{",
        r"\boxed{}",
        "\\boxed{" + "(" * 5000 + "}",
        "no box",
    ],
)
def test_no_box_is_taken_out_where_math_verify_may_read_more(response):
    assert box_of(response) is None


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (r"So $x = 2$ and the answer is $\boxed{5}$.", "5"),
        (r"The final answer is: $\boxed{\frac{1}{2}}$. I hope it is correct.", r"\frac{1}{2}"),
        (r"Hence \[ y = \boxed{ [0, 1) } \] as claimed.", "[0, 1)"),
        ("in 3 steps: \\boxed{\\text{A}}\n", r"\text{A}"),
    ],
)
def test_a_box_is_taken_out_of_ordinary_responses(response, content):
    assert box_of(response) == content


@pytest.mark.parametrize(
    ("content", "answer", "equal"),
    [
        ("5", "5", True),
        (r" \dfrac{1}{2}", r"\frac{1}{2} ", True),
        ("(3, -4)", "(3, -4)", True),
        (r"3\sqrt{13}", r"3\sqrt{13}", True),
        ("5", "5.0", False),
        ("()", "()", False),  # nothing may be left to compare
        (r"\text{}", r"\text{}", False),
        ("9^{9^{9^{9}}}", "9^{9^{9^{9}}}", False),  # Math-Verify hangs
        ("100!", "100!", False),
        ("1" * 61, "1" * 61, False),
        ("$5$", "$5$", False),
    ],
)
def test_only_short_plain_texts_are_accepted_without_math_verify(content, answer, equal):
    assert plainly_equal(content, answer) == equal
    if equal:
        assert verify_math(boxed(content), answer) == 1.0


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"0123456789.,()+-/={} ", r"\frac", r"\sqrt", r"\pi", r"\frac{1}{2}"]),
        max_size=12,
    ).map("".join)
)
def test_what_is_accepted_without_math_verify_it_accepts_too(text):
    content = box_of(f"so ${boxed(text)}$.")
    if content is not None and plainly_equal(content, content):
        assert verify_math(boxed(content), content) == 1.0


INTEGERS = st.integers(-(10**15) + 1, 10**15 - 1) | st.integers(-20, 20)


@settings(max_examples=150, deadline=None)
@given(first=INTEGERS, second=INTEGERS, form=st.sampled_from(("{}", " {} ", "{:03}")))
def test_what_is_rejected_without_math_verify_it_rejects_too(first, second, form):
    content, answer = form.format(first), str(second)
    assert plainly_different(content, answer) == (first != second)
    if first != second:
        assert verify_math(boxed(content), answer) == 0.0


@pytest.mark.parametrize("content", ["5.0", "5%", "1,000", "1" * 16, "x", "", "-", "--5", "٥"])
def test_only_integers_are_rejected_without_math_verify(content):
    assert not plainly_different(content, "7")
    assert not plainly_different("7", content)


def test_real_solutions_get_the_verdicts_of_plain_math_verify(math500):
    pick = random.Random(0)
    for row in pick.sample(math500, 100):
        for answer in (row["answer"], pick.choice(math500)["answer"]):
            assert by_part(row["solution"], answer) == verify_math(row["solution"], answer)


@pytest.mark.parametrize("content", [r"\approx 10", r"\frac{4}{3}.", "10", "@#"])
def test_a_box_that_cannot_be_read_gets_math_verifys_verdict_even_if_it_is_all_there_is(
    plain, content
):
    """The whole response, which is the box, is read by its default rules, too."""
    for answer in ("10", r"\frac{4}{3}", "4"):
        wanted = verify_math(boxed(content), answer)
        assert plain.grade([boxed(content)], [answer]).tolist() == [wanted]
    assert verify_math(boxed(r"\approx 10"), "10") == 1.0


def test_a_thousand_wrong_pairings_are_rejected(grader, math500):
    """All that are accepted, plain Math-Verify also says to be the same answer."""
    pick = random.Random(1)
    found, references = (pick.sample(math500, count) for count in (25, 40))
    pairs = [(row, reference["answer"]) for row in found for reference in references]
    responses = [rf"The answer is $\boxed{{{row['answer']}}}$." for row, _ in pairs]
    rewards = grader.grade(responses, [answer for _, answer in pairs])
    accepted = [(row["answer"], a) for (row, a), r in zip(pairs, rewards, strict=True) if r]
    assert grader.failures == 0
    assert 0 < len(accepted) < 100
    for found, answer in accepted:
        assert verify_math(boxed(found), answer) == 1.0


def test_the_same_verdicts_from_every_thread_and_in_any_order(plain, math500):
    rows = math500[:60]
    answers = [row["answer"] for row in rows]
    pairs = [(row["solution"], answer) for row in rows for answer in (row["answer"], answers[0])]
    expected = [verify_math(*pair) for pair in pairs]

    def in_order(seed):
        order = random.Random(seed).sample(range(len(pairs)), len(pairs))
        futures = plain.submit(*zip(*(pairs[i] for i in order), strict=True))
        return [futures[order.index(i)].result() for i in range(len(pairs))]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(in_order, range(4))) == [expected] * 4
    assert in_order(4) == expected


BOMBS = {
    "tower": "9^{9^{9^{9}}}",
    "factorial": "(10^{10})!",
    "integer": "9" * 100_000,
    "decimals": "0." + "3" * 100_000,
    "round brackets": "(" * 100_000,
    "braces": "{" * 100_000,
    "fractions": r"\frac{" * 3000 + "1" + "}{2}" * 3000,
    "roots": r"\sqrt{" * 3000,
    "boxes": r"\boxed{" * 3000,
    "dollars": "$" * 100_000,
    "spaces": " " * 1_000_000,
    "a megabyte": "x" * 1_000_000,
    "phrases": "the final answer is " * 5000,
    "control characters": "".join(map(chr, range(32))) * 100,
    "surrogate": "\ud800",
    "definition": r"\def\a{\a\a}\a",
}


@pytest.fixture(scope="module")
def strict():
    """Ends what takes half a second."""
    with MathGrader(timeout=0.5, workers=2) as grader:
        yield grader


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_cost_their_own_reward_at_most(strict, bomb):
    responses = [boxed(bomb), f"$\\boxed{{{bomb}", f"the answer is ${bomb}$ 1", r"$\boxed{5}$", "5"]
    assert strict.grade(responses, ["5"] * 5).tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


HOSTILE = st.text(max_size=40) | st.lists(
    st.sampled_from([*PIECES, "9", "^", "!", r"\int", r"\sum_", "("]), max_size=15
).map("".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(HOSTILE, min_size=20, max_size=20))
def test_thousands_of_hostile_responses_are_graded(strict, texts):
    """Each as it is and in a box, and then an honest one."""
    responses = [*texts, *map(boxed, texts)]
    assert set(strict.grade(responses, ["5"] * len(responses))) <= {0.0, 1.0}
    assert strict.grade(["5"], ["5"]).tolist() == [1.0]


def test_a_worker_takes_no_more_memory_than_it_may(caplog):
    """An honest response after it has the room that it needs."""
    with MathGrader(timeout=20.0, workers=1, memory=64 * 1024**2) as grader:
        rewards = grader.grade(["7 " * 20_000_000, r"$\boxed{5}$ it is"], ["7", "5"])
        assert rewards[1] == 1.0
        (worker,) = grader._pool._workers
        status = Path(f"/proc/{worker._pid}/limits")
        if status.exists():
            assert "Max address space         unlimited" not in status.read_text()


def test_verdicts_are_remembered_and_forgotten():
    verdicts = _LatestResults(2)
    verdicts.put(b"a", 1.0)
    verdicts.put(b"b", 0.0)
    assert verdicts.get(b"a") == 1.0
    verdicts.put(b"c", 1.0)
    assert [verdicts.get(key) for key in (b"a", b"b", b"c")] == [1.0, None, 1.0]


RIGHT = [
    ("4.", "4"),
    (r"\approx 10", "10"),
    (r"\frac{4}{3}.", r"\frac43"),
    (r"\mathbf{12}", "12"),
    (r"\boldsymbol{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\text{1.75}", "1.75"),
    (r"\text{5 cm}", "5"),
    (r"1\,525", "1525"),
    (r"\$1{,}525.50", "1525.5"),
    ("4.5E33", "4.5e33"),
    (r"4.5 \times 10^{33}", "4.5e33"),
    (r"4.5\cdot10^{33}", "4.5e33"),
    ("4.5*10^(33)", "4.5e33"),
    ("4.5 × 10^33", "4.5e33"),
    ("4.5e33", r"4.5 \times 10^{33}"),
    (r"4.5\times10^{33}\ \mathrm{erg}\,\mathrm{s}^{-1}", "4.5e33"),
    (r"6 \times 10^{-3}", "0.006"),
    (r"10^{-3}", "1e-3"),
    ("2", "['2']"),
    (r"\frac{1}{4}, 64", r"['$64,\\frac{1}{4}$']"),
    ("(3,2), (1,1)", "$(1,1)$, $(3,2)$"),
    ("10", r"10 \mathrm{~cm}"),
    (r"2\sqrt{3}\,\text{cm}^2", r"2\sqrt3"),
    ("12 dollars", "12"),
    ("12.5", r"12.5\%"),
    ("0.125", r"12.5\%"),
    ("EAST", r"\text{East}"),
    (r"\textbf{(B)}", "B"),
    ("\u22125", "-5"),
    ("-1/3", "-1./3"),
    (r"\angle ABC = 90^\circ", "90"),
    (r"9^{9^{9^{9}}}", r"9^{9^{9^{9}}}"),
    ("1.6", "$$s = 3600 = \\boxed{1.6} \\mathrm{~cm}$$"),
]


@pytest.mark.parametrize(("found", "answer"), RIGHT)
def test_forms_that_people_use(found, answer):
    assert verify_answer(found, answer) == 1.0


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ("4.5e32", "4.5e33"),
        (r"1.6 \times 10^{-19}", r"9.1 \times 10^{-31}"),  # both round to 0
        ("4.5e33", "-4.5e33"),
        ("0.0000012", "0.0000014"),
        ("1234567.1", "1234567.2"),
        (r"1\,525", "1, 525, 7"),
        (r"12.5\%", "12.5"),
        (r"\mathbf{12}", "13"),
        (r"\text{West}", r"\text{East}"),
        ("(A)", "B"),
        (r"5 \text{ million}", "5000"),
        ("(1,2)", "(2,1)"),
        ("2", "2, 3"),
        ("", "4"),
        (".", "4"),
    ],
)
def test_what_stays_wrong_in_any_form(found, answer):
    assert verify_answer(found, answer) == 0.0


def test_values_that_round_to_one_another_are_math_verifys():
    assert verify_answer("0.3333333", "0.33333333") == verify_math(boxed("0.3333333"), "0.33333333")


@pytest.mark.parametrize(
    ("response", "answer", "final"),
    [
        (r"first $\boxed{3}$, so $\boxed{5}$", "5", "5"),
        (r"first \boxed{3}, so \boxed{5}", "5", "5"),
        (r"\boxed{3}, \boxed{5}", "3", "5"),
        (r"$\boxed{5}$, as in case 2 with $n = 3$.", "5", "5"),
        (r"The final answer is $7$. I hope it is correct. \boxed{5}", "5", "5"),
        (r"$\fbox{3}$ it is", "3", "3"),
        (r"\boxed 5 is it", "5", "5"),
        (r"$\boxed{50}$ percent", "50", r"50\%"),
        (r"$\boxed{50}\%$", "50", r"50\%"),
        (r"\boxed{50} % a comment", "50", "50"),
        (r"\boxed{5}, to be put into \boxed{}", "5", "5"),
        (r"\boxed{5} and then \boxed{cut off", "5", "5"),
        (r"$\boxed{2}$ or $\boxed{-3}$", "-3, 2", "2, -3"),
        (r"$\boxed{2}$, again $\boxed{2}$", "2, 3", "2"),
        (r"$x = \boxed{7}$; so they are $\boxed{2, 3}$", "2, 3", "2, 3"),
        (r"$\boxed{2}$ or $\boxed{-3}$", "(2, -3)", "-3"),
        (r"$\boxed{2}$ or $\boxed{-3}$", "1,525", "-3"),
        ("no box", "5", None),
        (r"\boxed{" + "x" * 2000 + "}", "5", None),
    ],
)
def test_the_last_box_is_the_final_answer(response, answer, final):
    assert last_answer(response, answer) == final


def test_the_grader_takes_the_last_box_wherever_it_stands(grader):
    responses = [r"say \boxed{3}, no, \boxed{5}", r"\boxed{5}, no, \boxed{3}", "so $5$"]
    assert grader.grade(responses, ["5"] * 3).tolist() == [1.0, 0.0, 1.0]
    assert grader.grade([r"\boxed{4.5 \times 10^{33}}"], ["['4.5e33']"]).tolist() == [1.0]


def test_many_boxes_that_are_not_closed_are_looked_at_only_in_part():
    assert final_boxes(r"\boxed{5} " + r"\boxed{" * 100_000, 1) is None


@pytest.mark.parametrize(
    ("answer", "bare", "values"),
    [
        ("['2']", "2", 1),
        ('["2, 3"]', "2, 3", 2),
        ("['2', '3']", "['2', '3']", 1),
        (r"['$\\frac{1}{2}$']", r"$\frac{1}{2}$", 1),
        (r"['\frac{1}{2}']", r"\frac{1}{2}", 1),
        (r"so $\boxed{7}$ cm", "7", 1),
        ("1,525", "1,525", 1),
        ("1,2,3", "1,2,3", 3),
        ("(1,2), (3,4)", "(1,2), (3,4)", 2),
        ("[2]", "[2]", 1),
    ],
)
def test_what_a_reference_says(answer, bare, values):
    assert bare_reference(answer) == bare
    assert values_of(bare) == values


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*PIECES, *ANSWERS, "\\", "^", "e9"])).map("".join)
)
def test_any_text_is_tidied_once(text):
    """What is in the common form stays, and nothing raises."""
    common = tidied(text[:1000])
    number_of(common)
    assert isinstance(common, str)
    assert len(common) < 2 * len(text) + 20


@settings(max_examples=100, deadline=None)
@given(
    digits=st.decimals("0.001", "9.999", places=3),
    power=st.integers(-30, 30),
    shift=st.integers(-3, 3),
)
def test_a_number_has_one_value_in_all_of_its_notations(digits, power, shift):
    value = number_of(tidied(f"{digits}e{power}"))
    moved = digits.scaleb(shift)
    for form in (
        "{0:f}e{1}",
        r"{0:f} \times 10^{{{1}}}",
        r"{0:f}\cdot 10^{{{1}}}",
        "{0:f} * 10^({1})",
    ):
        assert number_of(tidied(form.format(moved, power - shift))) == value
    assert number_of(tidied(f"-{digits}E{power}")) == -value


MINERVA = "work\nFinal Answer: The final answer is {}. I hope it is correct."


@pytest.mark.parametrize(
    ("response", "answer", "verdict"),
    [
        (MINERVA.format("$24$"), "24", 1.0),
        (MINERVA.format(r"$-\frac{2}{3}$"), r"-\frac23", 1.0),
        (MINERVA.format("$x = 5$ dollars"), "5", 1.0),
        (MINERVA.format("$1,000$"), "1000", 1.0),
        (MINERVA.format(r"$0.5$"), r"\frac{1}{2}", 1.0),
        (MINERVA.format("$24$"), "25", 0.0),
        (MINERVA.format(r"$4.5 \times 10^{33}$"), "4.5e33", 1.0),
        (MINERVA.format(r"$4.5 \times 10^{32}$"), "4.5e33", 0.0),
        (MINERVA.format("$1.6$"), "\\[s = 36 = \\boxed{1.6} \\mathrm{~cm}\\] as asked", 1.0),
        (MINERVA.format("$2$"), "['2']", 1.0),
        (MINERVA.format("$24$").removesuffix("I hope it is correct."), "24", 1.0),
        (r"$\boxed{24}$", "24", 0.0),
        (MINERVA.format("$1$") + "\n" + MINERVA.format("$2$"), "1", 1.0),
        ("Final Answer: The final answer is\n$24$. I hope it is correct.", "24", 0.0),
        ("Final Answer: The final answer is" * 30_000, "24", 0.0),
    ],
)
def test_minervas_convention(response, answer, verdict):
    found = minerva_answer(response)
    assert (0.0 if found is None else verify_minerva(found, answer)) == verdict


def test_minervas_convention_can_be_chosen(caplog):
    with MathGrader(convention="minerva", workers=1) as grader:
        responses = [MINERVA.format("$24$"), r"$\boxed{24}$", r"it is $\boxed{24}$"]
        assert grader.grade(responses, ["24"] * 3).tolist() == [1.0, 0.0, 0.0]
    assert caplog.text.count("has its answer in a box, and gets 0") == 1
    with pytest.raises(ValueError, match="must be one of last_box, math_verify, minerva; got 'x'"):
        MathGrader(convention="x")
