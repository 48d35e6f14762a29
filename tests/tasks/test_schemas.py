"""Rows as the data sets of the field have them: which column is what, and what is the answer.

The columns are those of the data sets' pages on the hub, and of the loaders of rLLM, verl and TRL.
"""

import json

import pytest
from row_files import GSM8K_CARD, write_rows
from rows import contents

from rollwise.grading import MathGrader
from rollwise.grading.testcases import AssertTests, CallTests, ProgramTests, read_tests
from rollwise.tasks import read_problems

SUM = "Ann has 600+600=<<600+600=1200>>1200 pens.\n#### 1,200"
BOXED = r"Half of it is $\frac{1}{2}$, so $x = \boxed{\frac{3}{4}}$."
ASKED = [{"role": "user", "content": "1+1?"}]
TRUTH = {"ground_truth": "2", "style": "rule"}

MATHEMATICS = {
    "openai/gsm8k": (
        {"question": "1+1?", "answer": SUM},
        ("1200", SUM),
        "question -> problem, answer (after ####) -> answer",
    ),
    "DigitalLearningGmbH/MATH-lighteval": (
        {"problem": "1+1?", "level": "Level 5", "type": "Algebra", "solution": BOXED},
        (r"\frac{3}{4}", BOXED),
        r"problem -> problem, solution (in \boxed{}) -> answer",
    ),
    "HuggingFaceH4/MATH-500, DeepScaleR, NuminaMath-1.5, OpenR1": (
        {"problem": "1+1?", "solution": BOXED, "answer": "2", "problem_type": "Algebra"},
        ("2", BOXED),
        "problem -> problem, answer -> answer",
    ),
    "Maxwell-Jia/AIME_2024": (
        {"ID": "2024-I-1", "Problem": "1+1?", "Solution": "one", "Answer": 33},
        ("33", ""),
        "Problem -> problem, Answer -> answer",
    ),
    "zwhe99/DeepMath-103K": (
        {"question": "1+1?", "final_answer": "2", "difficulty": 6.0, "r1_solution_1": "so"},
        ("2", ""),
        "question -> problem, final_answer -> answer",
    ),
    "BytedTsinghua-SIA/DAPO-Math-17k": (
        {"prompt": ASKED, "reward_model": TRUTH, "data_source": "math", "ability": "MATH"},
        ("2", ""),
        "prompt -> problem, reward_model.ground_truth -> answer",
    ),
    "open-r1/DAPO-Math-17k-Processed": (
        {"prompt": "1+1?", "solution": "2", "source_prompt": ASKED, "reward_model": TRUTH},
        ("2", "2"),
        "prompt -> problem, reward_model.ground_truth -> answer",
    ),
    "trl-lib/DeepMath-103K": (
        {"prompt": ASKED, "solution": "2"},
        ("2", "2"),
        "prompt -> problem, solution -> answer",
    ),
    "TRL's with ground_truth": (
        {"prompt": ASKED, "ground_truth": "2"},
        ("2", ""),
        "prompt -> problem, ground_truth -> answer",
    ),
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", MATHEMATICS)
def test_columns_are_recognized(tmp_path, suffix, name):
    row, (answer, solution), said = MATHEMATICS[name]
    result = read_problems(write_rows(tmp_path / f"data.{suffix}", [row]))
    [problem] = result.problems
    assert (contents(problem), problem.answer, problem.solution) == (["1+1?"], answer, solution)
    assert result.describe() == f"1 read; 1 kept; columns: {said}"
    assert problem.subject == ("Algebra" if {"type", "problem_type"} & {*row} else "")
    assert problem.source == row.get("data_source", "")


def test_turns_of_open_reasoner_zero_are_read(tmp_path):
    turns = [
        {"from": "human", "value": "1+1?"},
        {"from": "assistant", "ground_truth": {"value": "2"}},
    ]
    (tmp_path / "array.json").write_text(json.dumps([turns]))
    numbered = write_rows(tmp_path / "data.parquet", [dict(zip("01", turns, strict=True))])
    for path in (tmp_path / "array.json", numbered):
        [problem] = read_problems(path).problems
        assert (contents(problem), problem.answer) == (["1+1?"], "2")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("3+4=<<3+4=7>>7.\n#### 7", "7"),
        ("3+4=7 #### 7\n", "7"),
        ("#### -12,345,678.5", "-12345678.5"),
        ("#### (1,200, 3)", "(1200, 3)"),
        ("#### 1,2", "1,2"),
        ("#### a note\nthen 7", "#### a note\nthen 7"),  # it is not at the end
        ("C# #### \n", "C# #### \n"),
        ("1,200", "1,200"),
    ],
)
def test_the_answer_of_gsm8k_follows_the_hashes(read, answer, found):
    [problem] = read({"question": "q", "answer": answer}).problems
    assert problem.answer == found
    assert problem.solution == (answer if found != answer else "")


def test_what_is_read_from_gsm8k_is_graded(read):
    [problem] = read({"question": "q", "answer": SUM}).problems
    said = [r"\boxed{1200}", "#### 1,200", "The answer is $1,200.", SUM, "12", r"\boxed{1,201}"]
    with MathGrader(workers=1) as grader:
        rewards = grader.grade(said, [problem.answer] * len(said))
    assert rewards.tolist() == [1, 1, 1, 1, 0, 0]


STDIN = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
CASE = {"input": "1\n2", "output": "3"}
FUNCTIONAL = json.dumps([CASE | {"testtype": "functional"}])
CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3"
CALL = CallTests("add", ([1, 2],), (3,))
CODE = {
    "APPS, TACO": (
        {"question": "q", "input_output": json.dumps(STDIN), "solutions": "[]", "starter_code": ""},
        ProgramTests(("1 2\n",), ("3\n",)),
    ),
    "APPS, of a function": (
        {"question": "q", "input_output": json.dumps({**STDIN, "fn_name": "add", "inputs": [[1]]})},
        CallTests("add", ([1],), ("3\n",)),
    ),
    "LiveCodeBench": (
        {
            "question_content": "q",
            "starter_code": "class Solution:",
            "public_test_cases": FUNCTIONAL,
            "private_test_cases": "eJxr",
            "metadata": '{"func_name": "add"}',
        },
        CALL,
    ),
    "DeepCoder, LiveCodeBench's": (
        {
            "problem": "q",
            "starter_code": "class Solution:",
            "tests": FUNCTIONAL,
            "metadata": {"func_name": "add", "contest_id": 1},
        },
        CALL,
    ),
    "DeepCoder, PrimeIntellect's": (
        {"problem": "q", "tests": [{"type": "stdin_stdout", "input": "1", "output": "2"}]},
        ProgramTests(("1",), ("2",)),
    ),
    "MBPP": (
        {"prompt": "q", "test_list": ["assert add(1, 2) == 3"], "test_imports": ["import math"]},
        AssertTests("import math\n\nassert add(1, 2) == 3"),
    ),
    "HumanEval": (
        {"prompt": "def add(a, b):\n", "test": CHECK, "entry_point": "add"},
        AssertTests(f"\n{CHECK}\ncheck(add)"),
    ),
    "KodCode": (
        {"question": "q", "solution": "def add(a, b): ...", "test": CHECK},
        AssertTests(f"\n{CHECK}\n"),
    ),
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", CODE)
def test_tests_of_programs_are_read(tmp_path, suffix, name):
    row, tests = CODE[name]
    result = read_problems(write_rows(tmp_path / f"data.{suffix}", [row]), instruction="Go.")
    [problem] = result.problems
    assert read_tests(problem.answer) == tests
    starter = row.get("starter_code")
    assert contents(problem)[0].startswith(row.get("prompt", "q"))
    assert contents(problem)[0].endswith("class Solution:\n```\n\nGo." if starter else "\n\nGo.")
    assert ("+ starter_code -> problem" in result.describe()) == bool(starter)


def test_tests_that_are_not_json_are_named(read):
    from rollwise.errors import DataError

    with pytest.raises(DataError, match=r"line 1: `public_test_cases` and `metadata` must be JSON"):
        read({"question_content": "q", "public_test_cases": "[]", "metadata": "{"})


def test_a_folder_of_the_hub_is_read_as_it_is_now_and_its_main_subset_by_default(tmp_path):
    folder = tmp_path / "gsm8k"
    for answer in ("#### 1", "#### 2"):  # the library would keep the first in its cache
        for part in ("main/train", "main/test", "socratic/train"):
            rows = [{"question": part, "answer": f"so\n{answer}"}]
            write_rows(folder / f"{part}-00000-of-00001.parquet", rows)
        (folder / "README.md").write_text(GSM8K_CARD)
        for subset, split in ((None, "train"), (None, "test"), ("socratic", "train")):
            [problem] = read_problems(folder, split=split, subset=subset).problems
            assert contents(problem) == [f"{subset or 'main'}/{split}"]
            assert problem.answer == answer[-1]
