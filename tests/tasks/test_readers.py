"""Problems that are read: what is kept, and what is counted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import NOTHING_DROPPED, contents, plain, verl, write

from rollwise.tasks import Problem, ProblemSet, read_problems
from rollwise.tasks.problem import problem_key

REAL_DATA = Path(__file__).parents[2].parent / "shared/data"


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json", ".JSONL"])
def test_the_plain_schema_survives_a_round_trip(tmp_path, suffix):
    rows = [plain("Añadir 1+1?", "2", level=3, data_source="sums"), plain("2+2?", "4", level=1)]
    result = read_problems(write(tmp_path / f"data{suffix}", rows))
    assert result.problems == [
        Problem.ask("Añadir 1+1?", "2", source="sums", level=3),
        Problem.ask("2+2?", "4", level=1),
    ]
    assert result.counts == {"read": 2, **NOTHING_DROPPED, "kept": 2}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_verls_schema_survives_a_round_trip(tmp_path, suffix):
    rows = [verl("1+1?", "2", extra_info={"index": 0}), verl("2+2?", "4", extra_info={"index": 1})]
    result = read_problems(write(tmp_path / f"data{suffix}", rows))
    assert result.problems == [
        Problem.ask("1+1?", "2", source="sums"),
        Problem.ask("2+2?", "4", source="sums"),
    ]
    assert result.counts == {"read": 2, **NOTHING_DROPPED, "kept": 2}


def test_a_path_may_be_text_and_start_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "data.jsonl", [plain()])
    assert read_problems("~/data.jsonl") == read_problems(str(tmp_path / "data.jsonl"))


def test_both_schemas_at_once_are_verls(read):
    assert (
        read({**verl("shown"), **plain("not shown")}).problems[0].messages[0]["content"] == "shown"
    )


def test_named_columns_mean_the_plain_schema(read):
    row = {**verl("not shown"), "question": "1+1?", "solution": "2"}
    result = read(row, problem_column="question", answer_column="solution")
    assert contents(result.problems[0]) == ["1+1?"]


def test_one_column_may_be_named_alone(read):
    assert read({"question": "1+1?", "answer": "2"}, problem_column="question").counts["kept"] == 1
    assert read({"problem": "1+1?", "result": "2"}, answer_column="result").counts["kept"] == 1


def test_an_empty_name_is_none(read):
    assert read(verl(), problem_column="", answer_column="").counts["kept"] == 1


def test_verls_conversation_is_kept_whole_and_nothing_but_role_and_content(read):
    prompt = [
        {"role": "system", "content": "Be brief.", "name": None},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "3"},
        {"role": "user", "content": "Again."},
    ]
    messages = read(verl() | {"prompt": prompt}).problems[0].messages
    assert messages == tuple({"role": m["role"], "content": m["content"]} for m in prompt)


def test_the_instruction_stands_below_a_plain_problem_only(read):
    assert contents(read(plain(), instruction="Be brief.").problems[0]) == ["1+1?\n\nBe brief."]
    assert contents(read(verl(), instruction="Be brief.").problems[0]) == ["1+1?"]


def test_a_system_prompt_comes_first_unless_there_is_one(read):
    own = verl() | {
        "prompt": [{"role": "system", "content": "Own."}, {"role": "user", "content": "?"}]
    }
    plain_row, verl_row, with_own = (
        read(row, system_prompt="Be brief.").problems[0] for row in (plain(), verl(), own)
    )
    assert contents(plain_row) == contents(verl_row) == ["Be brief.", "1+1?"]
    assert plain_row.messages[0]["role"] == "system"
    assert contents(with_own) == ["Own.", "?"]


@pytest.mark.parametrize("written", [5, 5.0, "5", "Level 5", "level 5 ", "LEVEL5"])
def test_a_level_is_a_number_or_names_one(read, written):
    assert read(plain(level=written)).problems[0].level == 5


@pytest.mark.parametrize(
    "written",
    [
        None,
        "",
        "Level ?",
        "hard",
        True,
        -1,
        2.5,
        [3],
        float("nan"),
        float("inf"),
        "7" * 30,
        10**4000,
    ],
)
def test_anything_else_is_no_level(read, written):
    assert read(plain(level=written)).problems[0].level is None


@pytest.mark.parametrize(
    ("written", "answer"), [(3, "3"), (3.0, "3.0"), (-0.5, "-0.5"), (" x ", " x ")]
)
def test_an_answer_becomes_text(read, written, answer):
    assert read(plain(answer=written)).problems[0].answer == answer
    assert read(verl(ground_truth=written)).problems[0].answer == answer


def test_decimal_answers_of_parquet_become_text(tmp_path):
    table = pa.table({"problem": ["1/2?"], "answer": pa.array([0.5]).cast(pa.decimal128(3, 2))})
    pq.write_table(table, tmp_path / "data.parquet")
    assert read_problems(tmp_path / "data.parquet").problems[0].answer == "0.50"


def test_a_pass_rate_is_read_with_the_responses_it_was_measured_with(read):
    """As `rollwise prepare` writes them."""
    [problem] = read(plain(pass_rate=0.25, drawn=16)).problems
    assert problem.measured == (4.0, 16.0)


@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"pass_rate": 0.5},
        {"pass_rate": None, "drawn": 16},
        {"pass_rate": 50.0, "drawn": 16},
        {"pass_rate": "0.5", "drawn": 16},
        {"pass_rate": 0.5, "drawn": 0},
        {"pass_rate": 0.5, "drawn": 10**400},
    ],
)
def test_anything_else_is_no_measured_pass_rate(read, cells):
    assert read(plain(**cells)).problems[0].measured == (0.0, 0.0)


def test_a_key_is_that_of_what_is_shown(read):
    problem = read(plain(), instruction="Be brief.", system_prompt="You add.").problems[0]
    assert problem.key == problem_key(problem.messages) != Problem.ask("1+1?", "2").key


def test_a_key_column_names_the_problem(read):
    first, second, third = read(
        plain("a", key="first"), plain("b", key=2), plain("c", key=None)
    ).problems
    assert (first.key, second.key) == ("first", "2")
    assert third.key == Problem.ask("c", "").key


@given(order=st.permutations(range(6)))
def test_keys_do_not_depend_on_the_order_of_rows(tmp_path_factory, order):
    path = tmp_path_factory.mktemp("order") / "data.jsonl"
    rows = [plain(f"{i}+1?", str(i + 1)) for i in range(6)]
    shuffled = read_problems(write(path, [rows[i] for i in order])).problems
    assert [problem.key for problem in shuffled] == [
        Problem.ask(rows[i]["problem"], "").key for i in order
    ]


@pytest.mark.parametrize("answer", [None, "", " \n", float("nan")])
def test_a_missing_answer_is_counted(read, answer):
    for row, kept in ((plain(answer=answer), plain()), (verl(ground_truth=answer), verl())):
        result = read(row, kept)
        assert result.counts == {"read": 2, **NOTHING_DROPPED, "missing_answers": 1, "kept": 1}


def test_an_absent_answer_is_missing(read):
    rows = [{"problem": "a"}, plain()]
    assert read(*rows).counts["missing_answers"] == 1
    rows = [verl() | {"reward_model": None}, verl() | {"reward_model": {"style": "rule"}}]
    assert read(*rows).counts["missing_answers"] == 2


@pytest.mark.parametrize("problem", [None, "", " \n"])
def test_an_empty_problem_is_counted_whatever_is_put_around_it(read, problem):
    result = read(plain(problem), {"answer": "2"}, instruction="Add.", system_prompt="You add.")
    assert result.counts == {"read": 2, **NOTHING_DROPPED, "empty_problems": 2, "kept": 0}
    assert result.problems == []


@pytest.mark.parametrize(
    "prompt",
    [None, [], [{"role": "user", "content": " "}], [{"role": "system", "content": "Add."}]],
)
def test_a_prompt_that_asks_nothing_is_empty(read, prompt):
    assert read(verl() | {"prompt": prompt}).counts["empty_problems"] == 1


def test_of_duplicates_the_first_is_kept_and_conflicts_are_counted_too(read):
    result = read(plain(answer="2"), plain(answer="2"), plain(answer="3"))
    assert [problem.answer for problem in result.problems] == ["2"]
    duplicates = {"duplicates": 2, "conflicting_answers": 1}
    assert result.counts == {"read": 3, **NOTHING_DROPPED, **duplicates, "kept": 1}


def test_a_row_without_an_answer_hides_no_later_one(read):
    result = read(plain(answer=None), plain(answer="2"))
    assert result.counts["duplicates"] == 0
    assert result.problems == [Problem.ask("1+1?", "2")]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", " ", ""]), st.sampled_from(["1", "2", ""])),
        max_size=12,
    )
)
def test_every_row_is_accounted_for(rows):
    result = ProblemSet.of(Problem.ask(question, answer) for question, answer in rows)
    counts = result.counts
    dropped = counts["duplicates"] + counts["missing_answers"] + counts["empty_problems"]
    assert counts["read"] == len(rows) == counts["kept"] + dropped
    assert counts["kept"] == len(result.problems) == len({p.key for p in result.problems})
    assert counts["conflicting_answers"] <= counts["duplicates"]


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"read": 5, "kept": 5}, "5 read; 5 kept"),
        (
            {"read": 12_000, "duplicates": 12, "missing_answers": 3, "kept": 11_985},
            "12,000 read, 12 duplicates, 3 missing answers; 11,985 kept",
        ),
        (
            {"read": 9, "duplicates": 3, "conflicting_answers": 2, "empty_problems": 1, "kept": 5},
            "9 read, 3 duplicates, 2 of them with another answer, 1 empty problem; 5 kept",
        ),
    ],
)
def test_the_description_names_only_what_happened(counts, line):
    assert ProblemSet([], NOTHING_DROPPED | counts).describe() == line


def real(name):
    path = REAL_DATA / name
    if not path.exists():
        pytest.skip(f"no real data: {path} is not there")
    return path


def test_the_real_math_training_set():
    result = read_problems(real("math_train.parquet"), system_prompt="", instruction="Not used.")
    # Two rows of this file have an empty ground_truth.
    assert result.counts == {
        "read": 12_000,
        **NOTHING_DROPPED,
        "missing_answers": 2,
        "kept": 11_998,
    }
    assert result.describe() == "12,000 read, 2 missing answers; 11,998 kept"
    assert {problem.source for problem in result.problems} == {"qwen_remove"}
    assert all(len(problem.messages) == 1 for problem in result.problems)
    assert contents(result.problems[0])[0].endswith("within \\boxed{}.\nAnswer:\n")


def test_the_real_math500():
    result = read_problems(real("math500.jsonl"), instruction="Think.")
    assert result.counts == {"read": 500, **NOTHING_DROPPED, "kept": 500}
    assert {problem.level for problem in result.problems} == {1, 2, 3, 4, 5}
    assert all(contents(problem)[0].endswith("\n\nThink.") for problem in result.problems)


def test_the_real_aime24():
    assert read_problems(real("aime24.jsonl")).counts["kept"] == 30
