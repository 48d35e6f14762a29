"""Problems read and written: what is kept, and what is counted."""

import json
import math
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_files import write_rows
from rows import NOTHING_DROPPED, contents, plain, verl

from rollwise.errors import DataError
from rollwise.tasks import ProblemSet, read_problems, remove_near_duplicates, write_problems
from rollwise.tasks.problem import Problem, problem_key


@pytest.mark.parametrize("row", [plain, verl])
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json", ".JSONL", "array", "indented"])
def test_each_schema_survives_a_round_trip(tmp_path, suffix, row):
    rows = [row("Añadir 1+1?", "2", level=3, data_source="sums"), row("2+2?", "4", level=1)]
    if suffix.startswith("."):
        path = write_rows(tmp_path / f"data{suffix}", rows)
    else:
        path = tmp_path / "data.json"
        path.write_text(json.dumps(rows, indent=2 if suffix == "indented" else None), "utf-8-sig")
    result = read_problems(path)
    assert result.problems == [
        Problem.ask("Añadir 1+1?", "2", source="sums", level=3),
        Problem.ask("2+2?", "4", source="sums" if row is verl else "", level=1),
    ]
    assert result.counts == {"read": 2, **NOTHING_DROPPED, "kept": 2}


OWN = {
    "prompt": [
        {"role": "system", "content": "Own.", "name": None},
        {"role": "user", "content": "?"},
    ]
}


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ({**verl("shown"), **plain("not shown")}, {}, ["shown"]),
        (
            {**verl("not shown"), "question": "1+1?", "solution": "2"},
            {"problem_column": "question", "answer_column": "solution"},
            ["1+1?"],
        ),
        ({"question": "1+1?", "answer": "2"}, {"problem_column": "question"}, ["1+1?"]),
        ({"problem": "1+1?", "result": "2"}, {"answer_column": "result"}, ["1+1?"]),
        (verl(), {"problem_column": "", "answer_column": ""}, ["1+1?"]),
        (plain(), {"instruction": "Be brief."}, ["1+1?\n\nBe brief."]),
        (verl(), {"instruction": "Be brief."}, ["1+1?"]),
        (plain(), {"system_prompt": "Be brief."}, ["Be brief.", "1+1?"]),
        (verl(), {"system_prompt": "Be brief."}, ["Be brief.", "1+1?"]),
        (verl() | OWN, {"system_prompt": "Be brief."}, ["Own.", "?"]),
    ],
)
def test_columns_instruction_and_system_prompt(read, row, options, expected):
    problem = read(row, **options).problems[0]
    assert contents(problem) == expected
    assert [m["role"] for m in problem.messages] == ["system", "user"][-len(expected) :]
    assert all(m.keys() == {"role", "content"} for m in problem.messages)
    assert problem.key == problem_key(problem.messages)  # that of what is shown


NO_LEVELS = (None, "", "Level ?", "hard", True, -1, 2.5, [3], "7" * 30, 10**4000)


@pytest.mark.parametrize(
    ("written", "level"),
    [
        *((five, 5) for five in (5, 5.0, "5", "Level 5", "level 5 ", "LEVEL5")),
        *((none, None) for none in (*NO_LEVELS, float("nan"), float("inf"))),
    ],
)
def test_a_level_is_a_number_or_names_one(read, written, level):
    assert read(plain(level=written)).problems[0].level == level


@pytest.mark.parametrize(
    ("written", "answer"),
    [(3, "3"), (3.0, "3.0"), (-0.5, "-0.5"), (" x ", " x "), (["$2$"], "$2$")],
)
def test_an_answer_becomes_text(read, written, answer):
    assert read(plain(answer=written)).problems[0].answer == answer
    assert read(verl(ground_truth=written)).problems[0].answer == answer


def test_decimal_answers_of_parquet_become_text(tmp_path):
    table = pa.table({"problem": ["1/2?"], "answer": pa.array([0.5]).cast(pa.decimal128(3, 2))})
    pq.write_table(table, tmp_path / "data.parquet")
    assert read_problems(tmp_path / "data.parquet").problems[0].answer == "0.50"


@pytest.mark.parametrize(
    ("cells", "measured"),
    [
        ({"pass_rate": 0.25, "drawn": 16}, (4.0, 16.0)),  # as `rollwise prepare` writes them
        ({}, (0.0, 0.0)),
        *(({"pass_rate": rate, "drawn": 16}, (0.0, 0.0)) for rate in (None, 50.0, "0.5")),
        *(({"pass_rate": 0.5, "drawn": drawn}, (0.0, 0.0)) for drawn in (None, 0, 10**400)),
    ],
)
def test_a_pass_rate_is_read_with_the_responses_it_was_measured_with(read, cells, measured):
    assert read(plain(**cells)).problems[0].measured == measured


def test_a_key_column_names_the_problem(read):
    keys = [p.key for p in read(plain("a", key="first"), plain("b", key=2), plain("c")).problems]
    assert keys == ["first", "2", Problem.ask("c", "").key]


EMPTY = (None, "", " \n")


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        *(([plain(answer=none), plain()], {"missing_answers": 1}) for none in (*EMPTY, math.nan)),
        *(([verl(ground_truth=none)], {"missing_answers": 1}) for none in (*EMPTY, math.nan)),
        ([verl() | {"reward_model": r} for r in (None, {"style": ""})], {"missing_answers": 2}),
        *(([plain(none), {"answer": "2"}], {"empty_problems": 2}) for none in EMPTY),
        *(
            ([verl() | {"prompt": prompt}], {"empty_problems": 1})
            for prompt in (
                *(None, [], [{"role": "user", "content": " "}]),
                [{"role": "system", "content": "Add."}],
            )
        ),
        ([plain(answer=a) for a in "223"], {"duplicates": 2, "conflicting_answers": 1}),
    ],
)
def test_what_is_dropped_is_counted(read, rows, counts):
    """Whatever is put around an empty problem."""
    result = read(*rows, instruction="Add.", system_prompt="You add.")
    dropped = sum(count for name, count in counts.items() if name != "conflicting_answers")
    kept = len(rows) - dropped
    assert result.counts == {"read": len(rows), **NOTHING_DROPPED, **counts, "kept": kept}
    assert [problem.answer for problem in result.problems] == ["2"] * kept


def test_the_description_names_only_what_happened():
    counts = {"read": 12_004, "duplicates": 12, "conflicting_answers": 2, "empty_problems": 1}
    said = ProblemSet([], NOTHING_DROPPED | counts | {"kept": 11_991}).describe()
    assert said.startswith("12,004 read, 12 duplicates, 2 conflicting answers, 1 empty problem; ")


def test_what_is_written_is_read_back_as_it_was(tmp_path):
    talk = ({"role": "system", "content": "Ünïcode"}, {"role": "user", "content": "1\n2?\u2028"})
    problems = [
        Problem("own key", talk, " 3 ", "here", 5, "sums", "because"),
        Problem(problem_key(talk), talk, "3"),
    ]
    path = tmp_path / "problems.parquet"
    write_problems(path, problems, "math", {"pass_rate": [0.5, None]}, {"note": "x"})
    assert read_problems(path).problems == problems


def test_several_sources_are_joined_and_counted():
    one = ProblemSet.of([Problem.ask("a", "1"), Problem.ask("a", "2"), Problem.ask("b", "")])
    two = ProblemSet.of([Problem.ask("c", "3"), Problem.ask("a", "1")])
    joined = ProblemSet.join([one, two])
    assert [p.messages[0]["content"] for p in joined.problems] == ["a", "c"]
    dropped = {"duplicates": 2, "conflicting_answers": 1, "missing_answers": 1}
    assert joined.counts == {"read": 5, **NOTHING_DROPPED, **dropped, "kept": 2}


def test_sources_that_number_their_problems_alike_are_refused():
    one, two = (ProblemSet.of([replace(Problem.ask(q, "1"), key="0")]) for q in "ab")
    with pytest.raises(DataError, match="different problems of the key '0'"):
        ProblemSet.join([one, two])


def test_problems_that_differ_in_case_or_layout_alone_are_near_duplicates():
    first = Problem.ask(r"Find $\left( 2, x \right)$ now.", "6")
    again = [Problem.ask(q, " 6") for q in (r"find  $(2,\; x)$ now.", r"FIND $(2,x)$ NOW.")]
    others = [Problem.ask(r"Find $(3, x)$ now.", "6"), Problem.ask(r"find $(2, x)$ now.", "7")]
    assert remove_near_duplicates([first, *again, *others]) == [first, *others]
