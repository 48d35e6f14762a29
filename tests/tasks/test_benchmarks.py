"""Benchmarks by name, file and hub; and what is said where there is none."""

import pytest
from row_files import write_rows
from rows import contents, plain, verl

from rollwise.config import EvaluateConfig, make_settings
from rollwise.errors import ConfigError, DataError
from rollwise.grading.settings import INSTRUCTION
from rollwise.tasks import find_benchmarks, read_benchmark
from rollwise.tasks.benchmarks import NAMED


def settings(**data):
    return make_settings(EvaluateConfig, {"data": data}).data


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "own set.jsonl"
    return write_rows(path, [plain(f"{i}+1?", str(i + 1), subject="sums") for i in range(3)])


PAPERS = ["gsm8k", "math500", "minerva", "olympiadbench", "aime24", "aime25", "amc23", "aime_like"]


@pytest.mark.parametrize("name", PAPERS)
def test_a_named_benchmark_is_read_from_the_hub_or_says_how_to_use_a_file(hub, name):
    column = NAMED[name].problem_column
    calls = hub([{column: "1+1?", "answer": "2"}])
    [benchmark] = find_benchmarks([name])
    for instruction in (INSTRUCTION, "Guess."):
        [problem] = read_benchmark(benchmark, settings(), instruction).problems
        assert problem.messages == ({"role": "user", "content": f"1+1?\n\n{instruction}"},)
    assert calls == [(NAMED[name].source, NAMED[name].split)] * 2
    hub(ConnectionError("no answer"))
    with pytest.raises(DataError, match=f"file can be given instead: --benchmarks {name}=FILE"):
        read_benchmark(benchmark, settings())


def test_an_unknown_name_lists_what_exists():
    with pytest.raises(ConfigError) as caught:
        find_benchmarks(["mth500"])
    assert "there is no benchmark 'mth500'" in str(caught.value)
    assert all(name in str(caught.value) for name in [*NAMED, "running-sums", "name=file"])


def test_a_file_is_a_benchmark_of_its_stem_or_in_place_of_the_hub_one_of_its_name(file):
    [benchmark] = find_benchmarks([str(file)])
    assert benchmark.name == "own-set"
    problems = read_benchmark(benchmark, settings()).problems
    assert [p.messages[-1]["content"] for p in problems] == ["0+1?", "1+1?", "2+1?"]
    assert {p.subject for p in problems} == {"sums"}
    [benchmark] = find_benchmarks([f"amc23={file}"])
    assert benchmark.name == "amc23"
    found = read_benchmark(benchmark, settings(problems=1))
    assert (found.counts["read"], found.counts["beyond_limit"]) == (3, 2)
    [first] = found.problems
    assert first.messages[-1]["content"] == f"0+1?\n\n{INSTRUCTION}"
    with pytest.raises(ConfigError, match="math500 appears twice"):
        find_benchmarks(["math500", f"math500={file}"])


def test_what_is_added_does_not_change_the_key(file):
    [benchmark] = find_benchmarks([str(file)])
    plain = read_benchmark(benchmark, settings()).problems
    added = settings(instruction="Think.", system_prompt="You are.")
    asked = read_benchmark(benchmark, added).problems
    assert [p.key for p in asked] == [p.key for p in plain]
    assert asked[0].messages[0] == {"role": "system", "content": "You are."}
    assert asked[0].messages[1]["content"] == "0+1?\n\nThink."
    begun = verl() | {"prompt": [*verl()["prompt"], {"role": "assistant", "content": "Let me"}]}
    [benchmark] = find_benchmarks([str(write_rows(file, [begun]))])
    [problem] = read_benchmark(benchmark, added).problems
    assert contents(problem)[1:] == [problem.question, "Let me"] == ["1+1?\n\nThink.", "Let me"]


def test_the_built_in_benchmark_is_the_held_out_problems_of_training_and_bad_files_are_refused(
    tmp_path,
):
    [benchmark] = find_benchmarks(["running-sums"])
    assert len(read_benchmark(benchmark, settings()).problems) == 256
    assert len(read_benchmark(benchmark, settings(problems=7)).problems) == 7
    for answer, said in (
        ("", "holds no problem that can be used: 1 read, 1 missing"),
        ([1, 2], "]$"),
    ):
        [bad] = find_benchmarks([str(write_rows(tmp_path / "bad.jsonl", [plain(answer=answer)]))])
        with pytest.raises(DataError, match=said):
            read_benchmark(bad, settings())
