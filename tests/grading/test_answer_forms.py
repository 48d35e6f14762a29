"""The forms in which people write answers: what is equal, and what must never be."""

import contextlib
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollwise.answers import equal_answers, reference_answer
from rollwise.answers.comparing import are_equal
from rollwise.answers.nodes import Unreadable
from rollwise.answers.reading import read

MATH = Path(__file__).parents[3] / "shared" / "data" / "math_train.parquet"


@pytest.fixture(scope="module")
def references():
    """Return the different answers of MATH."""
    if not MATH.exists():
        pytest.skip(f"needs the MATH data at {MATH}")
    column = pq.read_table(MATH, columns=["reward_model"])["reward_model"].to_pylist()
    return sorted({row["ground_truth"] for row in column})


def grade(found, reference):
    return float(equal_answers(found, reference_answer(reference)))


def by_forms(found, answer):
    """Compare without Math-Verify."""
    try:
        return are_equal(read(found), read(answer))
    except Unreadable:  # a power that is too large
        return False


RIGHT = [
    *(("4.", "4"), (r"\approx 10", "10"), (r"\frac{4}{3}.", r"\frac43"), (r"\mathbf{12}", "12")),
    *((r"\text{5 cm}", "5"), (r"1\,525", "1525"), (r"\$1{,}525.50", "1525.5")),
    *(("4.5E33", "4.5e33"), ("4.5 × 10^33", "4.5e33"), ("4.5e33", r"4.5 \times 10^{33}")),
    (r"4.5\times10^{33}\ \mathrm{erg}\,\mathrm{s}^{-1}", "4.5e33"),
    *((r"\frac{1}{4}, 64", r"['$64,\\frac{1}{4}$']"), ("(3,2), (1,1)", "$(1,1)$, $(3,2)$")),
    *(("12.5", r"12.5\%"), ("0.125", r"12.5\%"), ("EAST", r"\text{East}")),
    *((r"\textbf{(B)}", "B"), ("\u22125", "-5"), ("-1/3", "-1./3")),
    *((r"\angle ABC = 90^\circ", "90"), (r"9^{9^{9^{9}}}", r"9^{9^{9^{9}}}")),
    *((r"0.\overline{3}", "1/3"), (r"0.1\overline{6}", r"\frac{1}{6}")),
    *(("x > 2", r"(2,\infty)"), (r"-1 \le x < 3", "[-1,3)")),
    *((r"x \in [2, \infty)", r"[2,\infty)"), (r"6-5\mathrm{i}", "6-5i")),
    *((r"\varnothing", r"\emptyset"), (r"\textbf{(B) } 5", "B"), ("1 1/2", "3/2")),
    *((r"1\frac{1}{2}", "1.5"), (r"\sin 30^\circ", r"\frac{1}{2}"), ("\u221a15", r"\sqrt{15}")),
    *(("100,200", "100, 200"), ("f(2) = 5", "5"), ("5", "x=5"), ("3, 2", r"\{2, 3\}")),
    *(("x = 2 \\text{ or } x = 3", "2, 3"), ("45 \\text{ square units}", "45")),
    *((r"x = 5 \text{ for all cases}", "5"), ("101_2", "101")),
    (r"\text{$\left( -2, \frac{1}{19} \right)$}", r"\left( -2, \frac{1}{19} \right)"),
    (r"\text{4x - \frac{3}{2}}", r"4x - \frac{3}{2}"),
    *((r"\text{approx. }10", "10"), ("3 > x", r"(-\infty, 3)"), ("2 < 3 < x", "2 < 3 < x")),
    *((r"\langle 1, 2 \rangle", "(1,2)"), (r"5\text{ million dollars}", "5000000")),
    *((share, "6.4") for share in (r"6.4\%", r"\text{6.4 percent}")),
    (r"\frac{-3 \pm \sqrt{5}}{2}", r"\frac{-3+\sqrt5}{2}, \frac{-3-\sqrt5}{2}"),
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 0.5 \end{pmatrix}",
        r"\begin{pmatrix} 1&2\\[2pt] 3&\frac12 \end{pmatrix}",
    ),
    # Plain syntax
    *((found, answer) for found, answer in ((r"\frac{\pi}{4}", "pi/4"), ("2*pi", r"2\pi"))),
    *(("x^2+1", "x**2+1"), (r"\ln 2", "ln(2)"), ("e^2", "exp(2)"), (r"\sqrt(2)", r"\sqrt{2}")),
    (r"7\sin\frac{\pi x}{5}+1", "7*sin(pi*x/5)+1"),
    # Lists in words
    *((found, "2 and 3") for found in ("2, 3", r"2\text{ and }3", "3 and 2")),
    *(("x=1 or x=2", "1, 2"), ("1, 2, and 3", "1,2,3"), ("C and A", "A,C")),
    *((r"\text{Bob and Alice}", "Alice and Bob"), (r"(1, 2)\text{ and }(3, 4)", "(3,4),(1,2)")),
    (r"15\frac{39}{40}, \frac{639}{40}", r"\frac{639}{40}"),  # one value in two forms
    # Options
    *((rf"\text{{{text}}}", "C") for text in ("Option C", "option (C)", "C - the third", "(C)")),
    *(("D: 5", "D"), ("(B) 5", "5"), ("B", r"\textbf{(B) } 5")),
    # Units
    *((r"3\text{ km}", r"3000 \text{ m}"), (r"36\text{ km/h}", r"10\text{ m/s}")),
    *((r"25\text{ cents}", r"\$0.25"), ("50¢", r"\$0.5"), ("-\\$0.50", "-0.5"), ("USD 5", "5")),
    *((rf"5\text{{ {unit}}}", "5") for unit in ("A", "N", "apples", "square units", "m/s^2")),
    *(("5m", "5"), ("5 kg", "5"), ("5m", r"m \cdot 5"), (r"100^\circ\text{C}", "100")),
    *((r"10\,\mathrm{k\Omega}", "10"), (r"5\frac{\text{m}}{\text{s}}", "5")),
    *(
        (r"5\text{ feet }6\text{ inches}", r"66\text{ inches}"),
        ("1 h 30 min", r"90\text{ minutes}"),
    ),
    *((r"45^{\circ}30'", r"45.5^\circ"), (r"\frac{\pi}{6}", r"30^\circ")),
    # Sets and intervals
    *((rf"\{{x {sep} x \ge 3\}}", r"[3,\infty)") for sep in (r"\mid", ":", r"\in \mathbb{R} \mid")),
    (r"\mathbb{R}\setminus\{2\}", r"(-\infty,2)\cup(2,\infty)"),
    (r"\text{all real numbers}", r"\mathbb{R}"),
    # Full-width and other characters
    *(("（2，3）", "(2,3)"), ("2、3", "2,3"), ("2；3", "2,3"), ("x＝5", "5"), ("－5", "-5")),
    *(("50％", r"50\%"), ("1：2", "1:2"), ("1，000", "1000"), ("x³", "x^3"), ("5½", "5.5")),
    # Equations
    *((f"{left}=25", "25") for left in ("x^2+y^2", r"x^2+\frac{1}{x^2}", "3^2+4^2", "ab")),
    *((r"\int_0^5 2x\,dx=25", "25"), (r"\cos 2\theta=\frac12", r"\frac12"), ("3 = x", "x=3")),
    *(("2x+4y=6", "x+2y=3"), ("y=0.5x+3", "x-2y+6=0"), ("-x > -1", "x < 1")),
    *(("(x,y)=(1,2)", "x=1,y=2"), ("y=2, x=1", "x=1,y=2"), ("(1,2)", "a=1,b=2")),
    (r"\frac13 \approx 0.33", r"\frac13"),
    # Expressions
    *(("wxyz", "zyxw"), ("2abcd", "2dcba"), ("4^n", "2^{2n}"), (r"\tan^2 y+1", r"\sec^2 y")),
    *((r"e^{i\pi/2}", "i"), (r"\cos(n\pi)", "(-1)^n"), (r"\log 100", "2"), (r"\ln x", r"\log x")),
    *((r"{5\choose2}", "10"), ("^5C_2", "10"), ("{1\\over2}", "0.5"), (r"\frac{1}{2}3", "1.5")),
    *((r"\lfloor 3.7\rfloor", "3"), (r"\max(1,2)", "2"), (r"|-5|", "5"), (r"\sqrt[3]{-8}", "-2")),
    (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"),
    # Numbers
    *(("0.333333", "1/3"), ("0.30000000000000004", "0.3"), ("3.141592654", r"\pi")),
    *(("1000,99", "1000.99"), ("0,111", "0.111"), ("1,234.5", "1234.5"), ("1.5", "3:2")),
    *(("6:4", "3:2"), (r"\text{10:30 PM}", "22:30"), ("5 May 2020", "May 5, 2020")),
    *(("July 4, 1776", "1776-07-04"), (r"1011_{\text{two}}", "1011_2"), ("10–20", "10-20")),
]


@pytest.mark.parametrize(("found", "answer"), RIGHT)
def test_forms_that_people_use(found, answer):
    assert grade(found, answer) == 1.0


OTHER_UNITS = [
    *(("kg", "g"), ("m", "cm"), ("s", "h"), ("nm", "mm"), ("Hz", "kHz"), ("eV", "MeV")),
    *(("km/h", "m/s"), ("rad/s", "m/s"), ("m/s", "m/s^2"), ("GB", "MB"), ("AM", "PM")),
    *(("euros", "pounds"), ("boys", "girls"), ("km east", "km west"), ("square m", "square cm")),
]


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ("4.5e32", "4.5e33"),
        (r"1.6 \times 10^{-19}", r"9.1 \times 10^{-31}"),  # both round to 0
        *(("4.5e33", "-4.5e33"), ("0.0000012", "0.0000014"), ("1234567.1", "1234567.2")),
        *(("(1,2)", "(2,1)"), ("2", "2, 3"), ("", "4"), (".", "4"), ("{}=", "-4")),
        *(("1 < x > 3", "(1, 3)"), ("[1, 2]", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}")),
        # What looks like the reference once a sign is overlooked
        (r"\begin{pmatrix} 2 \\ 5 \end{pmatrix}", r"\begin{pmatrix} 5 \\ 2 \end{pmatrix}"),
        *(("42!", "42"), (r"\mathbf{2k}", "2"), (r"\text{2k}", "2"), (r"2 \text{ k}", "2")),
        *((r"2\,\mathrm{M}", "2"), (r"7.2^\circ", r"7.2\%"), ("\u221a15", "5")),
        *(("1 1/2", "11/2"), ("1, 234", "1,234"), (r"\$15, 000", r"\$15,\!000"), ("3 4", "34")),
        *(("5\u20137", "-2"), ("52_9", "52_8"), (r"5 \text{ cents}", r"\$5")),
        *((r"5 \text{ m}", r"5 \text{ cm}"), (r"\{15,-29\}", "(15,-29)")),
        (r"-\left( \frac{1}{2}, 3 \right)", r"\left( \frac{1}{2}, 3 \right)"),
        *(("2x = 10", "10"), ("x^2 = 9", "9"), ("y = 5", "x = 5"), ("4", "x^2 + y^2 = 4")),
        *((f"{sign} 5", "5") for sign in (r"\ne", r"\leq", ">", r"\not", r"\dim")),
        # Several values, of which one is read
        *((rf"8 {sign} 7", "7") for sign in ("|", r"\vee", r"\Rightarrow")),
        (r"2\sqrt{3}\text{ cm} = 4\sqrt{3}\text{ cm}", r"2\sqrt{3}"),
        (r"12\pi\text{ cm}, 13\pi\text{ cm}", r"12\pi"),
        (r"\sqrt{3}\text{ or maybe } \sqrt{5}", r"\sqrt{3}"),
        # Near zero, and exact values that are close
        *((rf"\frac{{3}}{{2^{{98}}}}{end}", rf"\frac{{5}}{{2^{{98}}}}{end}") for end in ("", "+x")),
        *(("e^{-100}", "e^{-101}"), (r"\frac{1}{20!}", r"\frac{1}{21!}"), ("e^{-300}", "0")),
        *((r"(1, e^{-100})", r"(1, e^{-101})"), ("2^{1000}", "2^{1000}+1")),
        (r"\int_0^1 e^{-100} dx", r"\int_0^1 e^{-101} dx"),
        *(("1/1000001", "1/1000002"), (r"\sqrt2+10^{-40}", r"\sqrt2"), ("100000.4", "100000.5")),
        *(("3.1416", r"\pi"), ("1.41421", r"\sqrt2"), ("6.62607e-34", "6.62608e-34")),
        # Units
        *((f"5 {one}", f"5 {other}") for one, other in OTHER_UNITS[:3]),
        *((rf"5\text{{ {one}}}", rf"5\text{{ {other}}}") for one, other in OTHER_UNITS),
        *((r"5\text{ euros}", r"\$5"), (r"30^\circ", "30'"), (r"30^\circ", r"30\text{ rad}")),
        *(
            (rf"5\text{{ {words}}}", "5")
            for words in ("lakh", "below zero", "or more", "R 3", "thousandths", "plus 1", "to 6")
        ),
        # Words around an answer
        *((words, "5") for words in ("not 5", "at least 5", "half of 5", "5 or 6", "5 - maybe 6")),
        # Equations
        *((r"\sin^2\theta+2=3", "3"), ("f(x)+2=5", "5"), ("x^2+1=5", "5"), ("5", "x=5, y=3")),
        *(("y=Ce^x", "y=e^x"), ("y < x", "x < y"), ("(y,x)=(1,2)", "(x,y)=(1,2)")),
        # Sets
        *((r"\{\{1\},2\}", r"\{1,\{2\}\}"), ("1,1,2", "1,2"), ("x > 2 or x < 5", "2 < x < 5")),
        *((r"x>2\text{ and }x<1", r"(-\infty,1)\cup(2,\infty)"), ("(1,2)", r"[1,2]")),
        # Expressions
        *((r"\frac{24}{9}1", r"\frac{24}{91}"), ("x1", "x"), (r"\bar{x}", "x"), ("x'", "x")),
        *((r"\sqrt{x^2}", "x"), ("f(2)+f(3)", "f(5)"), ("5!!", "120"), ("e^x", "ex"), ("0/0", "0")),
        *((r"\{1,2\}^2", r"\{1,2\}"), (r"\neg 5", "5"), (r"5\&6", "5"), ("zoo", "0"), ("I", "1")),
        *(("12:00", "1:00"), ("1:3", "10:30 p.m."), ("1:2", "2"), ("42", "52_8")),
        *(("1,234", "1.234"), ("not B", "B"), ("B, C", "B"), ("(A) B", "B"), ("(A)", "B")),
    ],
)
def test_what_stays_wrong_in_any_form(found, answer):
    assert grade(found, answer) == 0.0


def test_another_digit_is_another_answer(references):
    """Whatever stands around the digit; what is not told apart is left to Math-Verify."""
    for answer in references:
        for place in list(re.finditer(r"\d", answer))[:1]:
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
@example("x_")
@example(r"\text{")
@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_itself_and_nothing_else_is_raised(text):
    with contextlib.suppress(Unreadable):
        assert are_equal(read(text), read(text))
        assert isinstance(equal_answers(text, "5"), bool)


@settings(max_examples=100, deadline=None)
@given(
    digits=st.decimals("0.001", "9.999", places=3),
    power=st.integers(-30, 30),
    shift=st.integers(-3, 3),
)
def test_a_number_has_one_value_in_all_of_its_notations(digits, power, shift):
    moved = digits.scaleb(shift)
    for form in ("{}e{}", r"{} \times 10^{{{}}}", r"{}\cdot 10^{{{}}}", "{} * 10^({})"):
        written = form.format(f"{moved:f}", power - shift)
        assert by_forms(written, f"{digits}e{power}")
        assert by_forms(f"-{digits}E{power}", f"-{written}")
        assert not by_forms(written, f"-{digits}e{power}")
