"""Every grader of ours, and a user's own, keeps the contract."""

import json

import numpy as np
import pytest

from rollwise.errors import ConfigError
from rollwise.grading import CodeGrader, ExactGrader, FunctionGrader, Grader, MathGrader
from rollwise.grading.testing import GraderContract


class TestExactGrader(GraderContract):
    def make(self):
        return ExactGrader()


class TestMathGrader(GraderContract):
    def make(self):
        return MathGrader(timeout=0.5, workers=2)


class TestFunctionGrader(GraderContract):
    def make(self):
        return FunctionGrader("operator:eq", workers=2)


class TestClassGrader(GraderContract):
    reward = 0.25

    def make(self):
        return FunctionGrader("evaluating:Credit", workers=2, settings={"credit": 0.25})


class TestCodeGrader(GraderContract):
    tests = json.dumps({"inputs": ["1"], "outputs": ["2"], "fn_name": "next"})
    correct = ("def next(x): return x + 1", tests)
    incorrect = ("def next(x): return x", tests)

    def make(self):
        return CodeGrader(workers=2, uncontained=True)


class Broken(Grader):
    """Gives rewards in the wrong order, and does not look at what it is given."""

    def grade(self, responses, answers):
        correct = [float(r == a) for r, a in zip(responses, answers, strict=False)]
        return np.array(correct[::-1])


@pytest.mark.parametrize(
    "test", [name for name in vars(GraderContract) if name.startswith("test_")]
)
def test_the_contract_finds_a_broken_grader(test):
    contract = GraderContract()
    contract.make = Broken
    fine = {"test_no_responses_have_no_rewards", "test_it_can_be_closed_twice_and_unused"}
    if test in fine:
        getattr(contract, test)()
    else:
        with pytest.raises(AssertionError):
            getattr(contract, test)()


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("evaluating:Credit", {"kredit": 1.0}, "unexpected keyword argument 'kredit'"),
        ("evaluating:Credit", {"credit": -1.0}, "credit must not be negative, got -1.0"),
        ("fractions:Fraction", {}, "has no method `grade"),
        ("operator:eq", {"credit": 1.0}, "is a function, which takes no settings"),
    ],
)
def test_a_class_that_cannot_be_made_of_its_settings(name, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        FunctionGrader(name, settings=settings)
