"""Files and data sets of the hub: how they are read, and what is refused."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_files import write_rows
from rows import NOTHING_DROPPED, contents, plain, verl

from rollwise.errors import DataError
from rollwise.tasks import ProblemSet, read_problems


def refusal(source, **options):
    with pytest.raises(DataError) as caught:
        read_problems(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("query answer", {}, "which column has the problem? None of query, answer is problem, "),
        ("question text", {}, "which column has the answer? None of text is answer, "),
        ("question answer", {"problem_column": "query"}, "which column has the problem? None of "),
        ("question prompt answer", {}, "is the problem in question or in prompt? Say so by "),
        ("question answer tests", {}, "is the answer in answer or in tests? Say so by `data.answ"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_that_are_not_recognized_or_several_are_named(
    tmp_path, suffix, columns, options, said
):
    path = write_rows(tmp_path / f"data.{suffix}", [dict.fromkeys(columns.split(), "1")])
    assert refusal(path, **options).startswith(f"{path}: {said}")


KINDS = "must be a file that ends in .parquet, .jsonl, .json"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, "no such file: {}") for name in ("data.parquet", "data.jsonl", "./data")),
        *((name, "no such file: {}") for name in ("~/surely/not/there", "./" + "x" * 300, "/a\0b")),
        (Path("openai/gsm8k"), "no such file: {}"),
        ("other.csv", "{}: " + KINDS),
        ("folder", "the data set '{}' (split 'train') could not be loaded: EmptyDatasetError"),
        ("broken.parquet", "{}: cannot be read as parquet: ArrowInvalid: "),
        ("folder.jsonl", "{}: cannot be read"),
        ("folder.parquet", "{}: cannot be read"),
    ],
)
def test_what_is_no_file_of_problems_is_named(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    Path("other.csv").touch()
    Path("broken.parquet").write_bytes(b"not parquet at all")
    for folder in ("folder", "folder.jsonl", "folder.parquet"):
        Path(folder).mkdir()
    assert refusal(name).startswith(said.format(Path(name).expanduser()))


LINES = json.dumps(plain()).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (LINES + b'{"problem": ', ", line 3: broken JSON: JSONDecodeError: Expecting value"),
        (LINES + b'{"problem": "\xff"}', ", line 3: broken JSON: UnicodeDecodeError"),
        (LINES + b"[" * 200_000, ", line 3: broken JSON: RecursionError"),
        (LINES + b'[{"problem": "a"}]', ", line 3: must be a JSON object, got list"),
        (LINES + rb'{"problem": "1+1?\uD800"}', r", line 3: \ud800 is half of a surrogate pair"),
        (LINES + rb'{"subject": "\udc00x"}', r", line 3: \udc00 is half of a surrogate pair"),
        (LINES + b'{"problem": 1' + b"0" * 5000 + b"}", ", line 3: broken JSON: ValueError: Exc"),
        (b'[\n {"problem": "1+1?",}]', ", which begins with [, is no array of rows: broken JSON"),
        (b'[{"problem": "1+1?"}, 3]', ", row 1 (from 0): must be a JSON object, got int"),
        (rb'[{"problem": "\ud800"}]', ", row 0 (from 0): \\ud800 is half of a surrogate pair"),
    ],
)
def test_broken_json_is_named_by_its_line_or_row(tmp_path, content, said):
    """Blank lines count."""
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path}{said}")


@pytest.mark.parametrize(
    ("line", "question"),
    [
        (rb'{"problem": "\ud83d\ude00", "answer": "1"}', "\N{GRINNING FACE}"),
        (json.dumps(plain("a\u2028b\u0085c"), ensure_ascii=False).encode(), "a\u2028b\u0085c"),
    ],
    ids=["both halves of a pair", "other ends of lines"],
)
def test_a_line_ends_at_a_newline_and_holds_any_character(tmp_path, line, question):
    (tmp_path / "data.jsonl").write_bytes(line + b"\r\n")
    assert contents(read_problems(tmp_path / "data.jsonl").problems[0]) == [question]


TOOLS = [{"type": "function"}]
CALLED = {"role": "assistant", "content": "", "tool_calls": TOOLS}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        *(({name: [{"bytes": "iVBO"}]}, name) for name in ("images", "image", "videos", "audio")),
        *(({"tools": tools}, "tools") for tools in (TOOLS, json.dumps(TOOLS))),
        ({"extra_info": {"tools_kwargs": {"calc": "now"}}}, "tools_kwargs"),
        ({"prompt": [{"role": "user", "content": "1+1?"}, CALLED]}, "tool_calls"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_that_is_more_than_text_is_refused(tmp_path, suffix, more, name):
    """The model would be asked without it, as if it were whole."""
    path = write_rows(tmp_path / f"data.{suffix}", [verl() | more, verl("good")])
    assert f"has `{name}`, and the model reads text alone" in refusal(path)
    empty = {"images": [], "image": None, "tools": "[]", "extra_info": {"tools_kwargs": None}}
    rows = [verl("good", **empty, audio=float("nan"))]
    assert len(read_problems(write_rows(path, rows)).problems) == 1


@pytest.mark.parametrize("row", [plain("<image>\n1+1?"), verl("Look at <image 1> and <video>")])
def test_a_problem_with_a_placeholder_is_refused(tmp_path, row):
    assert "must be text alone" in refusal(write_rows(tmp_path / "data.jsonl", [row]))


OBJECT = "`reward_model` must be an object {ground_truth}, "
TEXT = "`prompt` must be text or a list of messages, "
MESSAGE = "a message of `prompt` must have a role and a content, as text, "


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (plain(answer=["2", "3"]), "`answer` must be one answer, got list: ['2', '3']"),
        (plain(answer={"value": 2}), "`answer` must be text or a number, got dict: {'value': 2}"),
        (plain(answer=True), "`answer` must be text or a number, got bool: True"),
        (plain(key=[1]), "`key` must be text or a number, got list: [1]"),
        (verl(ground_truth=["2", "3"]), "`ground_truth` must be one answer, got list: ['2', '3']"),
        (verl() | {"reward_model": "2"}, OBJECT + "got str: '2'"),
        (verl() | {"prompt": {"role": "user"}}, TEXT + "got dict: {'role': 'user'}"),
        (verl() | {"prompt": [{"role": "user"}]}, MESSAGE + "got dict: {'role': 'user'}"),
    ],
)
def test_a_malformed_row_is_named(tmp_path, row, error):
    good = plain("good") if "problem" in row else verl("good")
    path = write_rows(tmp_path / "data.jsonl", [good, row])
    assert refusal(path) == f"{path}, line 2: {error}"


def test_a_malformed_row_of_parquet_is_named_by_its_number(tmp_path):
    rows = [plain(answer=[1]), plain(answer=list(range(1000)))]
    path = write_rows(tmp_path / "data.parquet", rows)
    said = refusal(path)
    assert said.startswith(f"{path}, row 1 (from 0): `answer` must be one answer, got list: [0, 1")
    assert len(said) < len(str(path)) + 200


def test_rows_of_both_schemas_in_one_file_are_refused(tmp_path):
    path = write_rows(tmp_path / "data.jsonl", [verl(), plain("2+2?", "4")])
    assert refusal(path) == (
        f"{path}, line 2: has `problem` and no `prompt`, where other rows are in verl's schema; "
        "give each schema a file of its own, got str: '2+2?'"
    )
    assert len(read_problems(write_rows(path, [verl() | plain(), verl("2+2?")])).problems) == 2


@pytest.mark.parametrize("rows", [[plain(level="Level 2")], [verl()]])
def test_a_name_that_is_no_path_is_read_from_the_hub(hub, read, rows):
    calls = hub([row | {"unused": "long"} for row in rows])
    assert read_problems("owner/name", split="test") == read(*rows)
    assert calls == [("owner/name", "test")]


@pytest.mark.parametrize("kind", [ConnectionError, FileNotFoundError, ValueError, RuntimeError])
def test_a_hub_out_of_reach_is_told_with_a_way_out(hub, kind):
    hub(kind("no\nanswer."))
    assert refusal("owner/name") == (
        "the data set 'owner/name' (split 'train') could not be loaded: "
        f"{kind.__name__}: no answer; a local parquet or JSON Lines file can be given instead"
    )


def test_the_hub_needs_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refusal("owner/name") == (
        "'owner/name' is not a file, and a data set on the hub or in a folder is read with the "
        'library datasets: pip install "rollwise[hub]"'
    )


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "sums.parquet"
    columns = [pa.array([text]) for text in ("1+1?", "2", "3")]
    pq.write_table(pa.table(columns, names=["problem", "answer", "answer"]), path)
    said = refusal(path)
    assert said.startswith(str(path)) and "'answer'" in said


def test_no_rows_are_no_error(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n  \n", encoding="utf-8")
    pq.write_table(pa.table({"problem": [], "answer": []}), tmp_path / "empty.parquet")
    for name in ("empty.jsonl", "empty.parquet"):
        result = read_problems(tmp_path / name)
        assert replace(result, columns="") == ProblemSet(
            [], {"read": 0, **NOTHING_DROPPED, "kept": 0}
        )
