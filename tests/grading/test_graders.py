"""Every grader of ours, and a user's own, keeps the contract."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rollwise.errors import ConfigError, PluginError
from rollwise.grading import (
    CodeGrader,
    ExactGrader,
    FunctionGrader,
    Grader,
    MathGrader,
)
from rollwise.grading.function import as_compute_score, as_reward_function
from rollwise.grading.settings import GraderSettings, make_grader
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

    async def reward(self, response, answer):
        return float(response == answer)

    def grade(self, responses, answers):
        correct = [float(r == a) for r, a in zip(responses, answers, strict=False)]
        return np.array(correct[::-1])


@pytest.mark.parametrize(
    "test", [name for name in vars(GraderContract) if name.startswith("test_")]
)
def test_the_contract_finds_a_broken_grader(test):
    contract = GraderContract()
    contract.make = Broken
    if test == "test_it_can_be_closed_twice_and_unused":
        getattr(contract, test)()
    else:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            getattr(contract, test)()


def test_a_module_in_the_current_directory_is_found_in_the_workers_too(here):
    (here / "mine_with_helper.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    from helper_of_mine import half\n"  # found only when called
        "    return half if solution_str == ground_truth else 0\n"
    )
    (here / "helper_of_mine.py").write_text("half = 0.5\n")
    with FunctionGrader("mine_with_helper:compute_score", workers=1) as grader:
        assert grader.grade(["a", "b"], ["a", "a"]).tolist() == [0.5, 0.0]
        assert grader.failures == 0


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("operator", {}, "must be given as module:function, got 'operator'"),
        ("__main__:score", {}, "'__main__:score': .* a module of its own"),
        ("no_such_module:f", {}, "'no_such_module:f': no module 'no_such_module' in HERE or on"),
        (
            "evaluating:evalate",
            {},
            "in module evaluating, which has Credit, evaluate, tell, write$",
        ),
        ("evaluating:LIMIT", {}, "'evaluating:LIMIT' is not callable: int"),
        ("evaluating:Credit", {"kredit": 1.0}, "unexpected keyword argument 'kredit'"),
        ("evaluating:Credit", {"credit": -1.0}, "credit must not be negative, got -1.0"),
        ("fractions:Fraction", {}, "has no method `grade"),
        ("operator:eq", {"credit": 1.0}, "is a function, which takes no settings"),
    ],
)
def test_a_name_of_no_function_or_settings_of_no_class_are_refused(here, name, settings, said):
    with pytest.raises(ConfigError, match=said.replace("HERE", str(here))):
        FunctionGrader(name, settings=settings)


def test_a_module_whose_own_import_is_missing_says_so(here):
    (here / "mine_without_friend.py").write_text("import no_such_friend\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_friend'"):
        FunctionGrader("mine_without_friend:score")


def test_a_limit_that_is_none():
    for timeout in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"timeout must be above 0 .* got {timeout}"):
            FunctionGrader("operator:eq", timeout=timeout)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        FunctionGrader("operator:eq", workers=0)


@pytest.mark.parametrize(
    ("name", "mistaken", "said"),
    [
        ("Mine", "def grade(self, r, a): return None", "NoneType: None"),
        ("Mine", "def grade(self, r, a): return float('nan')", "float: nan"),
        ("Mine", "def grade(self, r, a): return {}['x']", "raised KeyError: 'x'"),
        ("Mine", "def grade(self, r): return 1.0", "raised TypeError: "),
        ("mine", "def mine(r, a): return [1.0, 0.0]", "list: [1.0, 0.0]"),
        ("mine", "def mine(completions, answer): return [1.0, 0.0]", "list: [1.0, 0.0]"),
        (
            "mine",
            "def mine(solution_str, ground_truth, **more): return {}",
            "must return a finite `score`, got dict: {}",
        ),
        (
            "mine",
            "def mine(r, a): return {'score': 1, 'acc': 'yes'}",
            "an `acc` that is true, false",
        ),
        ("mine", "def mine(r, a): return {'score': 1, 'acc': 2}", "number from 0 to 1, got dict"),
        ("mine", "def mine(r, a): return {'score': float('inf')}", "a finite `score`, got dict"),
    ],
)
def test_a_wrong_reward_is_logged_with_the_grader_and_its_line(name, mistaken, said, here, caplog):
    module = f"of_{here.name}"  # imported once for all tests
    head = "" if name == "mine" else "class Mine:\n    "
    (here / f"{module}.py").write_text(head + mistaken + "\n")
    with FunctionGrader(f"{module}:{name}", workers=1) as grader:
        assert grader.grade(["3", "4"], ["3", "3"]).tolist() == [0.0, 0.0]
        assert grader.failures == 2
    (record,) = caplog.records
    line = 1 + head.count("\n")
    assert f"`{'grade' if head else name}` ({here}/{module}.py, line {line})" in record.message
    assert f"{module}:{name if head else ''}".rstrip(":") in record.message
    assert said in record.message and "\n" not in record.message


def test_settings_must_open_a_grader():
    class Mine(GraderSettings):
        def open(self, inputs):
            return None

    section = SimpleNamespace(timeout=1.0, workers=1, make=Mine)
    data = SimpleNamespace(environment="", environment_arguments={}, answer_column=None)
    with pytest.raises(PluginError, match=r"Mine: `open` .* must return a rollwise.grading.Grader"):
        make_grader(section, data)


@pytest.mark.parametrize(
    ("response", "answer", "reward"),
    [
        ("7 12 3 6=6", "6", 1.0),
        ("7 12 3 6=16", "6", 0.0),
        ("1=2= 6\n", "6 ", 1.0),
        ("6=", "6", 0.0),
        ("6.0", "6", 0.0),
    ],
)
def test_the_text_after_the_last_equals_sign_decides(response, answer, reward):
    with ExactGrader() as grader:
        assert grader.grade([response], [answer]).tolist() == [reward]


def test_a_grader_as_verls_compute_score():
    compute_score = as_compute_score(ExactGrader())
    assert compute_score("math", "1 2=3", "3", {"index": 1}) == 1.0
    arguments = {"data_source": "math", "solution_str": "4", "ground_truth": "3"}
    assert compute_score(**arguments, extra_info=None, more=1) == 0.0


@pytest.mark.parametrize(
    "completions",
    [
        ["1 2=3", "4"],
        [[{"role": "assistant", "content": "1 2=3"}], [{"role": "assistant", "content": "4"}]],
        [
            [{"role": "assistant", "content": [{"type": "text", "text": "1 2=3"}]}],
            [{"role": "tool", "content": "3"}, {"role": "assistant", "content": "4"}],
        ],
    ],
    ids=["texts", "messages", "parts"],
)
def test_a_grader_as_trls_reward_function(completions):
    reward = as_reward_function(ExactGrader(), answer_column="truth")
    assert reward.__name__ == "ExactGrader"
    assert reward(prompts=["?", "?"], completions=completions, truth=["3", "3"]) == [1.0, 0.0]


def test_a_missing_column_is_named():
    reward = as_reward_function(ExactGrader())
    with pytest.raises(ValueError, match="needs a column 'answer'; it has level, solution"):
        reward(prompts=["?"], completions=["3"], solution=["3"], level=[1])
