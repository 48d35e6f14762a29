"""No input ends in a traceback: files of problems, settings files and command lines of any kind."""

import json
import string
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from row_files import write_rows

from rollwise.cli import main
from rollwise.config import KINDS, EvaluateConfig, TrainConfig, make_settings, read_toml
from rollwise.config.reading import setting_types
from rollwise.errors import RollwiseError
from rollwise.records import RunFolder
from rollwise.simulate.recorded import read_recorded
from rollwise.tasks import read_problems, write_problems

COLUMNS = (
    *("problem", "answer", "prompt", "reward_model", "level", "subject", "solution", "key"),
    *("pass_rate", "drawn", "data_source", "reward", "tokens"),
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS | st.sampled_from([{"role": "user", "content": "1+1?"}, {"ground_truth": "2"}, 10**40]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(COLUMNS), inner, max_size=3)
    ),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(COLUMNS), VALUES, max_size=6), max_size=4)

fuzzed = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read_all(path):
    """Read problems and rewards; errors of ours are what is wanted, and problems are whole."""
    for read in (read_recorded, read_problems):
        try:
            found = read(path)
        except RollwiseError as error:
            assert str(path) in str(error)
        else:
            if read is read_problems:
                write_problems(path.with_name("again.parquet"), found.problems, "math")


@fuzzed
@given(rows=ROWS)
def test_any_json_lines(tmp_path, rows):
    read_all(write_rows(tmp_path / "any.jsonl", rows))


@fuzzed
@given(content=st.binary(max_size=200))
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_any_bytes(tmp_path, suffix, content):
    path = tmp_path / f"any{suffix}"
    path.write_bytes(content)
    read_all(path)


@fuzzed
@given(places=st.lists(st.integers(0, 10**6), max_size=3), bit=st.integers(0, 7))
def test_any_damage_to_parquet(tmp_path, places, bit):
    path = tmp_path / "any.parquet"
    table = pa.table({"problem": ["1+1?", "2+2?"], "answer": ["2", "4"], "level": [1, None]})
    pq.write_table(table, path)
    content = bytearray(path.read_bytes())
    for place in places:
        content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    read_all(path)


@fuzzed
@example(lines=[b"[" * 100_000, b""])
@given(lines=st.lists(st.binary(max_size=40) | VALUES.map(lambda v: json.dumps(v).encode())))
def test_any_metrics(tmp_path, lines):
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    try:
        assert all(isinstance(line["step"], int) for line in folder.read_metrics())
    except RollwiseError as error:
        assert "metrics.jsonl" in str(error)


NAMES = sorted({name for kind in KINDS.values() for name in setting_types(kind)})
GIVEN = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)


def nested(named):
    tables = {}
    for name, value in named.items():
        section, _, key = name.rpartition(".")
        place = tables.setdefault(section, {}) if section else tables
        if isinstance(place, dict):
            place[key] = value
    return tables


@fuzzed
@given(named=GIVEN)
@pytest.mark.parametrize("kind", KINDS.values())
def test_any_settings(kind, named):
    try:
        make_settings(kind, nested(named))
    except RollwiseError as error:
        assert str(error)


@pytest.mark.parametrize("given", [{"x" * 100_000: 1}, {"samples": "x" * 100_000}])
def test_an_error_does_not_print_all_of_a_long_value(given):
    with pytest.raises(RollwiseError) as caught:
        make_settings(EvaluateConfig, given)
    assert len(str(caught.value)) < 1000


@fuzzed
@example(text="a = " + "[" * 10_000)
@given(text=st.text(max_size=60) | st.text(string.printable + "[]=.\"'\n", max_size=60))
def test_any_toml(tmp_path, text):
    path = tmp_path / "any.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        make_settings(TrainConfig, read_toml(path))
    except RollwiseError as error:
        assert str(error)


WORDS = st.sampled_from([f"--{name}" for name in NAMES]) | st.text(max_size=12)


@settings(fuzzed, max_examples=8)
@example(words=["\0"])
@given(words=st.lists(WORDS, max_size=4))
@pytest.mark.parametrize("command", ["train", "evaluate", "prepare", "compare"])
def test_any_command_line(tmp_path, monkeypatch, capsys, command, words):
    """Settings are made of it, and nothing is run."""

    def settle(layers, *_):
        make_settings(KINDS[command], *layers)

    monkeypatch.setattr(f"rollwise.commands.{command}.{command}", settle)
    monkeypatch.chdir(tmp_path)
    try:
        code = main([command, *words])
    except SystemExit as end:  # of argparse: bad options, or --help
        code = end.code
    assert code in (0, 2), capsys.readouterr().err
    capsys.readouterr()
    assert Path.cwd() == tmp_path
