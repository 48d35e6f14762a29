"""The forms in which people write answers: what is equal, and what must never be."""

import contextlib
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollwise.grading.answer_forms import are_equal
from rollwise.grading.answer_text import Unreadable, latex, simplified, tight
from rollwise.grading.answer_values import number_of
from rollwise.grading.mathematics import verify_answer

MATH = Path(__file__).parents[3] / "shared" / "data" / "math_train.parquet"


@pytest.fixture(scope="module")
def references():
    """Return the different answers of MATH."""
    if not MATH.exists():
        pytest.skip(f"needs the MATH data at {MATH}")
    column = pq.read_table(MATH, columns=["reward_model"])["reward_model"].to_pylist()
    return sorted({row["ground_truth"] for row in column})


def by_forms(found, answer):
    """Compare by our forms alone, without Math-Verify."""
    return are_equal(simplified(found), simplified(answer), lambda found, reference: False)


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
    # Right, and refused by Math-Verify
    (r"0.\overline{3}", "1/3"),
    (r"0.1\overline{6}", r"\frac{1}{6}"),
    ("x > 2", r"(2,\infty)"),
    (r"-1 \le x < 3", "[-1,3)"),
    (r"x \in [2, \infty)", r"[2,\infty)"),
    (r"6-5\mathrm{i}", "6-5i"),
    (r"\varnothing", r"\emptyset"),
    (r"\textbf{(B) } 5", "B"),
    ("1 1/2", "3/2"),
    (r"1\frac{1}{2}", "1.5"),
    (r"\sin 30^\circ", r"\frac{1}{2}"),
    ("\u221a15", r"\sqrt{15}"),
    ("6!", "720"),
    ("1 234", "1234"),
    (r"x \equiv 3 \pmod 7", r"x \equiv 3 \pmod{7}"),
    ("100,200", "100, 200"),
    ("f(2) = 5", "5"),
    ("5", "x=5"),
    ("3, 2", r"\{2, 3\}"),
    ("x = 2 \\text{ or } x = 3", "2, 3"),
    ("45 \\text{ square units}", "45"),
    (r"x = 5 \text{ for all cases}", "5"),
    ("101_2", "101"),
    (r"\text{$\left( -2, \frac{1}{19} \right)$}", r"\left( -2, \frac{1}{19} \right)"),
    (r"\text{4x - \frac{3}{2}}", r"4x - \frac{3}{2}"),
    (r"\begin{array}{cc} 1 & 2 \end{array}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
    (r"\text{approx. }10", "10"),
    ("3 > x", r"(-\infty, 3)"),
    ("2 < 3 < x", "2 < 3 < x"),
    (r"\langle 1, 2 \rangle", "(1,2)"),
    (r"5\text{ million dollars}", "5000000"),
    *((share, "6.4") for share in (r"6.4\%", r"\text{6.4 percent}")),
    (r"\frac{-3 \pm \sqrt{5}}{2}", r"\frac{-3+\sqrt5}{2}, \frac{-3-\sqrt5}{2}"),
    ("(1, 2), (-1, 2)", r"(\pm 1, 2)"),
    (r"\mathbb{R}", r"\mathbb R"),
    ("12 cm^2", r"12\text{ cm}^2"),
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 0.5 \end{pmatrix}",
        r"\begin{pmatrix} 1&2\\[2pt] 3&\frac12 \end{pmatrix}",
    ),
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
        (r"12.5\%", "1.25"),
        (r"\mathbf{12}", "13"),
        (r"\text{West}", r"\text{East}"),
        ("(A)", "B"),
        (r"5 \text{ million}", "5000"),
        ("(1,2)", "(2,1)"),
        ("2", "2, 3"),
        ("", "4"),
        (".", "4"),
        ("{}=", "-4"),
        ("1 < x > 3", "(1, 3)"),
        ("[1, 2]", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        # What looks like the reference once a sign is overlooked
        (r"\begin{pmatrix} 2 \\ 5 \end{pmatrix}", r"\begin{pmatrix} 5 \\ 2 \end{pmatrix}"),
        ("42!", "42"),
        (r"\mathbf{2k}", "2"),
        (r"\text{2k}", "2"),
        (r"2 \text{ k}", "2"),
        (r"2\,\mathrm{M}", "2"),
        (r"7.2^\circ", r"7.2\%"),
        ("\u221a15", "5"),
        ("1 1/2", "11/2"),
        ("1, 234", "1,234"),
        (r"\$15, 000", r"\$15,\!000"),
        ("3 4", "34"),
        ("5\u20137", "-2"),
        ("52_9", "52_8"),
        (r"5 \text{ cents}", r"\$5"),
        (r"5 \text{ m}", r"5 \text{ cm}"),
        (r"\{15,-29\}", "(15,-29)"),
        (r"-\left( \frac{1}{2}, 3 \right)", r"\left( \frac{1}{2}, 3 \right)"),
        ("2x = 10", "10"),
        ("x^2 = 9", "9"),
        ("y = 5", "x = 5"),
        ("4", "x^2 + y^2 = 4"),
        ("[1, 2)", "(1, 2]"),
        ("x > 2", r"[2,\infty)"),
        ("3", r"x \equiv 3 \pmod{7}"),
        ("2, 2, 3", "2, 3, 3"),
        ("(A) 5", "B"),
        ("y > 2", "x > 2"),
        (r"12\text{ cm}^3", r"12\text{ cm}^2"),
        *((f"{sign} 5", "5") for sign in (r"\ne", r"\leq", ">", r"\not", r"\dim")),
        # Several values, of which one is read
        *((rf"8 {sign} 7", "7") for sign in ("|", r"\vee", r"\Rightarrow")),
        (r"2\sqrt{3}\text{ cm} = 4\sqrt{3}\text{ cm}", r"2\sqrt{3}"),
        (r"12\pi\text{ cm}, 13\pi\text{ cm}", r"12\pi"),
        (r"\sqrt{3}\text{ or maybe } \sqrt{5}", r"\sqrt{3}"),
        *((rf"3\text{{ {word}}}", "3") for word in ("million", "dozen", "squared", "and a half")),
    ],
)
def test_what_stays_wrong_in_any_form(found, answer):
    assert verify_answer(found, answer) == 0.0


def test_a_long_solution_as_reference_loses_no_form():
    solution = "We add. " * 200 + r"It is $\boxed{4.5 \times 10^{33}}$."
    assert verify_answer("4.5E33", solution) == 1.0
    assert verify_answer("4.5E32", solution) == 0.0


def test_another_digit_is_another_answer(references):
    """Whatever stands around the digit; what is not told apart is left to Math-Verify."""
    for answer in references:
        for place in list(re.finditer(r"\d", answer))[:3]:
            other = answer[: place.start()] + str(9 - int(place[0])) + answer[place.end() :]
            if "units}" not in answer:
                assert not by_forms(other, answer), (other, answer)


def test_each_reference_is_itself(references):
    for answer in filter(str.strip, references):
        assert by_forms(answer, answer), answer


PIECES = (
    *("5", "12", "3.5", "1,234", "x", "=", "-", "^", "_", "!", "{", "}", "(", ")", "[", ",", " "),
    *("$", r"\frac", r"\sqrt{2}", r"\text{ cm}", r"\mathbf{", r"\left", r"\%", r"\\", r"\{"),
    *(r"\circ", "\\", "\u221a", "\u2212", "\u2013", r"\overline{3}", "e9", " or "),
    *(r"\begin{pmatrix}", r"\end{pmatrix}"),
)


@settings(max_examples=100, deadline=None)
@example(r"^\)0")
@example(r"\circ A")
@example(r"x^\mathbf{2}")
@example("^$1$,234")
@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_read_once(text):
    """What was read and rendered is read as the same, and nothing else is raised."""
    with contextlib.suppress(Unreadable):
        read = simplified(text)
        number_of(read)
        assert tight(simplified(latex(read))) == tight(read)


@settings(max_examples=100, deadline=None)
@given(
    digits=st.decimals("0.001", "9.999", places=3),
    power=st.integers(-30, 30),
    shift=st.integers(-3, 3),
)
def test_a_number_has_one_value_in_all_of_its_notations(digits, power, shift):
    value = number_of(simplified(f"{digits}e{power}"))
    moved = digits.scaleb(shift)
    for form in (
        "{0:f}e{1}",
        r"{0:f} \times 10^{{{1}}}",
        r"{0:f}\cdot 10^{{{1}}}",
        "{0:f} * 10^({1})",
    ):
        assert number_of(simplified(form.format(moved, power - shift))) == value
    assert number_of(simplified(f"-{digits}E{power}")) == -value
