"""Problems read from files and the hub: what is kept, what is counted, what is refused."""

import builtins
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.errors import ConfigError, DataError
from rollwise.tasks import Problem, ProblemSet, find_benchmarks, read_problems
from rollwise.tasks.problem import problem_key

REAL_DATA = Path(__file__).parents[2].parent / "shared/data"
NOTHING_DROPPED = {
    "duplicates": 0,
    "conflicting_answers": 0,
    "missing_answers": 0,
    "empty_problems": 0,
}


def plain(problem="1+1?", answer="2", **more):
    return {"problem": problem, "answer": answer, **more}


def verl(content="1+1?", ground_truth="2", **more):
    prompt = [{"role": "user", "content": content}]
    reward_model = {"ground_truth": ground_truth, "style": "rule"}
    return {"data_source": "sums", "prompt": prompt, "reward_model": reward_model, **more}


def write(path, rows):
    """Write rows as the suffix of `path` says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def read(tmp_path):
    """Read rows by way of a JSON Lines file."""

    def read_rows(*rows, **options):
        return read_problems(write(tmp_path / "data.jsonl", rows), **options)

    return read_rows


def contents(problem):
    return [message["content"] for message in problem.messages]


# What is read


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


# Keys


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


# What is dropped, and counted


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


def test_no_rows_are_no_error(tmp_path, read):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n  \n", encoding="utf-8")
    result = read_problems(empty)
    assert result == ProblemSet([], {"read": 0, **NOTHING_DROPPED, "kept": 0})
    pq.write_table(pa.table({"problem": [], "answer": []}), tmp_path / "empty.parquet")
    assert read_problems(tmp_path / "empty.parquet") == result


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


# What is refused


def refusal(source, **options):
    with pytest.raises(DataError) as caught:
        read_problems(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_neither_schema_names_the_columns_and_both_schemas(tmp_path):
    path = write(tmp_path / "data.jsonl", [{"question": "1+1?", "answer": "2"}])
    assert refusal(path) == (
        f"{path}: its columns (question, answer) fit neither schema: verl's has prompt and "
        "reward_model, the plain one problem and answer (problem_column and answer_column name "
        "others)"
    )
    parquet = write(tmp_path / "data.parquet", [{"question": "1+1?"}])
    assert "(question) fit neither" in refusal(parquet)
    assert "the plain one query and answer" in refusal(path, problem_column="query")


@pytest.mark.parametrize(
    "name", ["data.parquet", "data.jsonl", "data.json", "./data", "../data.csv"]
)
def test_a_missing_file_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert refusal(name) == f"no such file: {Path(name)}"


def test_a_missing_path_is_no_data_set_on_the_hub(tmp_path):
    for path in (str(tmp_path / "data"), tmp_path / "data", Path("openai/gsm8k")):
        assert refusal(path) == f"no such file: {path}"
    assert refusal("~/surely/not/there") == f"no such file: {Path.home() / 'surely/not/there'}"


def test_another_kind_of_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.csv").touch()
    Path("folder").mkdir()
    expected = "must be a file that ends in .parquet, .jsonl, .json"
    assert refusal("data.csv") == f"data.csv: {expected}"
    assert refusal("folder") == f"folder: {expected}"


def test_broken_parquet_is_named(tmp_path):
    path = tmp_path / "data.parquet"
    path.write_bytes(b"not parquet at all")
    assert refusal(path).startswith(f"{path}: cannot be read as parquet: ArrowInvalid: ")


def test_a_folder_with_the_name_of_a_file_is_refused(tmp_path):
    for name in ("data.jsonl", "data.parquet"):
        (tmp_path / name).mkdir()
        assert refusal(tmp_path / name).startswith(f"{tmp_path / name}: cannot be read")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"problem": ', "broken JSON: JSONDecodeError: Expecting value"),
        (b'{"problem": "\xff"}', "broken JSON: UnicodeDecodeError"),
        (b"[" * 200_000, "broken JSON: RecursionError"),
        (b'[{"problem": "a"}]', "must be a JSON object, got list"),
        (b"null", "must be a JSON object, got NoneType"),
        (rb'{"problem": "1+1?\uD800"}', r"\ud800 is half of a surrogate pair"),
        (rb'{"problem": "1+1?", "subject": "\udc00x"}', r"\udc00 is half of a surrogate pair"),
        (b'{"problem": 1' + b"0" * 5000 + b"}", "broken JSON: ValueError: Exceeds the limit"),
    ],
)
def test_a_broken_line_is_named_blank_ones_counted(tmp_path, line, error):
    path = tmp_path / "data.jsonl"
    path.write_bytes(json.dumps(plain()).encode() + b"\n\n" + line)
    assert refusal(path).startswith(f"{path}, line 3: {error}")


def test_both_halves_of_a_pair_are_a_character(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(rb'{"problem": "\ud83d\ude00", "answer": "1"}')
    assert contents(read_problems(path).problems[0]) == ["\N{GRINNING FACE}"]


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path):
    path = tmp_path / "data.jsonl"
    question = "a\u2028b\u0085c"
    path.write_bytes(json.dumps(plain(question), ensure_ascii=False).encode() + b"\r\n")
    assert contents(read_problems(path).problems[0]) == [question]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (plain(answer=["2", "3"]), "`answer` must be one answer, got list: ['2', '3']"),
        (plain(answer={"value": 2}), "`answer` must be text or a number, got dict: {'value': 2}"),
        (plain(answer=True), "`answer` must be text or a number, got bool: True"),
        (plain(problem=["1+1?"]), "`problem` must be text or a number, got list: ['1+1?']"),
        (plain(key=[1]), "`key` must be text or a number, got list: [1]"),
        (verl(ground_truth=["2", "3"]), "`ground_truth` must be one answer, got list: ['2', '3']"),
        (
            verl() | {"reward_model": "2"},
            "`reward_model` must be an object {ground_truth}, got str: '2'",
        ),
        (
            verl() | {"prompt": "1+1?"},
            "`prompt` must be a list of messages {role, content}, got str: '1+1?'",
        ),
        (
            verl() | {"prompt": [{"role": "user"}]},
            "a message of `prompt` must have a role and a content, as text, "
            "got dict: {'role': 'user'}",
        ),
        (
            verl() | {"prompt": ["1+1?"]},
            "a message of `prompt` must have a role and a content, as text, got str: '1+1?'",
        ),
    ],
)
def test_a_malformed_row_is_named(tmp_path, row, error):
    good = plain("good") if "problem" in row else verl("good")
    path = write(tmp_path / "data.jsonl", [good, row])
    assert refusal(path) == f"{path}, line 2: {error}"


def test_a_malformed_row_of_parquet_is_named_by_its_number(tmp_path):
    rows = [verl(), verl() | {"prompt": [{"role": "user", "content": None}]}]
    path = write(tmp_path / "data.parquet", rows)
    assert refusal(path).startswith(f"{path}, row 1 (from 0): a message of `prompt` must have")


def test_a_long_value_is_shortened(tmp_path):
    path = write(tmp_path / "data.jsonl", [plain(answer=list(range(1000)))])
    assert len(refusal(path)) < len(str(path)) + 200


def test_rows_of_both_schemas_in_one_file_are_refused(tmp_path):
    path = write(tmp_path / "data.jsonl", [verl(), plain("2+2?", "4")])
    assert refusal(path) == (
        f"{path}, line 2: has `problem` and no `prompt`, where other rows are in verl's schema; "
        "give each schema a file of its own, got str: '2+2?'"
    )
    assert len(read_problems(write(path, [verl() | plain(), verl("2+2?")])).problems) == 2


# The hub


@pytest.fixture
def hub(monkeypatch):
    """A hub whose `load_dataset` returns `rows`, or raises them."""

    def serve(rows):
        calls = []

        def load_dataset(name, split):
            calls.append((name, split))
            if isinstance(rows, Exception):
                raise rows
            return datasets.Dataset.from_list(rows)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    return serve


@pytest.mark.parametrize("rows", [[plain(level="Level 2")], [verl()]])
def test_a_name_that_is_no_path_is_read_from_the_hub(hub, read, rows):
    calls = hub([row | {"unused": "long"} for row in rows])
    assert read_problems("owner/name", split="test") == read(*rows)
    assert calls == [("owner/name", "test")]


def test_errors_of_the_hubs_rows_name_data_set_and_row(hub):
    hub([plain(answer=["2", "3"])])
    assert refusal("owner/name").startswith(
        "owner/name, row 0 (from 0): `answer` must be one answer"
    )
    hub([{"question": "1+1?", "answer": "2"}])
    assert refusal("owner/name").startswith(
        "owner/name: its columns (question, answer) fit neither"
    )


@pytest.mark.parametrize("kind", [ConnectionError, FileNotFoundError, ValueError, RuntimeError])
def test_a_hub_out_of_reach_is_told_with_a_way_out(hub, kind):
    hub(kind("no\nanswer."))
    assert refusal("owner/name") == (
        "the data set 'owner/name' (split 'train') could not be loaded from the hub: "
        f"{kind.__name__}: no answer; a local parquet or JSON Lines file can be given instead"
    )


def test_the_hub_needs_its_library(monkeypatch):
    def import_all_but_datasets(name, *arguments):
        if name == "datasets":
            raise ModuleNotFoundError("No module named 'datasets'", name=name)
        return real_import(name, *arguments)

    real_import = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", import_all_but_datasets)
    assert refusal("owner/name") == (
        "'owner/name' is no local file, and a data set on the hub is read with the library "
        'datasets: pip install "rollwise[hub]"'
    )


# The real data


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


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_two_columns_of_one_name_are_refused(tmp_path, suffix):
    path = tmp_path / f"sums{suffix}"
    if suffix == ".jsonl":
        path.write_text('{"problem": "1+1?", "answer": "2", "answer": "3"}\n')
    else:
        columns = [pa.array(["1+1?"]), pa.array(["2"]), pa.array(["3"])]
        pq.write_table(pa.table(columns, names=["problem", "answer", "answer"]), path)
    with pytest.raises(DataError, match=rf"{path}.*'answer'"):
        read_problems(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [("x" * 10**7, "characters; a path"), ("a/" + "y" * 300, "characters"), ("a\0b", "a NUL")],
)
def test_a_name_that_no_file_can_have_is_refused_in_short(name, said):
    with pytest.raises(DataError) as of_source:
        read_problems(name)
    with pytest.raises(ConfigError) as of_benchmark:
        find_benchmarks([f"mine={name}"])
    for error in (of_source, of_benchmark):
        assert said in str(error.value) and len(str(error.value)) < 300
