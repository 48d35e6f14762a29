"""The problems of a run: training and held out apart, everything left out said."""

import logging
from types import SimpleNamespace

import pytest
from row_files import write_rows

from rollwise.config import BUILT_IN, make_config
from rollwise.errors import ConfigError, DataError
from rollwise.training.build import build
from rollwise.training.data import load_data, read_both


@pytest.fixture
def load(tokenizer):
    """Load the data of some settings, for a batch of 2 prompts where they name none."""

    def load(context=None, seed=0, prompts=None, **sections):
        settings = {"seed": seed, "prompts": prompts or {"batch_size": 2}, **sections}
        built = build(make_config(settings))
        built.backend = SimpleNamespace(tokenizer=tokenizer, context=context)
        return load_data(built, read_both(built.config))

    return load


@pytest.fixture
def write(tmp_path):
    """Write sums as a JSON Lines file: the numbers are the first terms."""

    def write(name, numbers):
        rows = [{"problem": f"{n}+1?", "answer": str(n + 1)} for n in numbers]
        return str(write_rows(tmp_path / name, rows))

    return write


def questions(problems):
    return [problem.messages[-1]["content"] for problem in problems]


def keys(problems):
    return {problem.key for problem in problems}


def test_the_built_in_task_holds_out_what_it_does_not_train_on(load):
    """Two terms leave few different problems, so that overlaps would be sure."""
    data = load(data={"problems": 150, "min_terms": 2, "max_terms": 2}, evaluation={"problems": 40})
    assert (len(keys(data.train)), len(keys(data.heldout))) == (150, 40)
    assert not keys(data.train) & keys(data.heldout)
    assert data.prompts.keys() == keys(data.train) | keys(data.heldout)


def test_held_out_problems_of_the_built_in_task_are_the_same_for_every_seed(load):
    one, two = (load(seed=seed, data={"problems": 20}) for seed in (0, 1))
    assert one.heldout == two.heldout
    assert one.train != two.train


def test_a_tenth_of_a_file_is_held_out_the_same_for_every_seed_and_order(load, write):
    forward = load(data={"train": write("a.jsonl", range(40))})
    backward = load(seed=1, data={"train": write("b.jsonl", reversed(range(40)))})
    assert (len(forward.train), len(forward.heldout)) == (36, 4)
    assert keys(forward.heldout) == keys(backward.heldout)
    assert keys(forward.train) == keys(backward.train)
    assert not keys(forward.train) & keys(forward.heldout)


def test_a_files_own_keys_do_not_decide_what_is_held_out(load, tmp_path):
    """Each prompt is there under two keys, in the order of the levels."""
    rows = [
        {"problem": f"{n % 100}+1?", "answer": "1", "key": f"{n:04}", "level": 1 + n // 100}
        for n in range(200)
    ]
    path = str(write_rows(tmp_path / "own.jsonl", rows))
    data = load(data={"train": path}, evaluation={"problems": 10})
    assert not {*questions(data.train)} & {*questions(data.heldout)}
    assert {problem.level for problem in data.heldout} == {1, 2}
    assert len({*questions(data.heldout)}) == 10


def test_problems_of_the_held_out_file_are_not_trained_on(load, write, caplog):
    train, heldout = write("train.jsonl", range(20)), write("heldout.jsonl", range(15, 25))
    with caplog.at_level(logging.WARNING):
        data = load(data={"train": train, "heldout": heldout})
    assert questions(data.train) == [f"{n}+1?" for n in range(15)]
    assert questions(data.heldout) == [f"{n}+1?" for n in range(15, 25)]
    assert "5 problems of " in caplog.text


def test_problems_in_both_files_are_found_whatever_their_keys(load, tmp_path):
    rows = [{"key": str(n), "problem": f"{n}+1?", "answer": str(n + 1)} for n in range(20)]

    def load_beside(key):
        train = write_rows(tmp_path / "train.jsonl", rows)
        heldout = write_rows(tmp_path / "heldout.jsonl", [rows[3] | {"key": key}])
        return load(data={"train": str(train), "heldout": str(heldout)})

    assert len(load_beside("x").train) == 19
    with pytest.raises(DataError, match="have different problems of the key '5'"):
        load_beside("5")


def test_the_built_in_task_can_be_held_out_or_trained_on_beside_a_file(load, write):
    path = write("a.jsonl", range(12))
    own = load(data={"train": path, "heldout": BUILT_IN}, evaluation={"problems": 6})
    assert (len(own.train), own.heldout) == (12, load(evaluation={"problems": 6}).heldout)
    built_in = load(data={"heldout": path, "problems": 30, "min_terms": 2, "max_terms": 2})
    assert (len(built_in.train), len(built_in.heldout)) == (30, 12)


def test_a_file_that_cannot_be_used_is_named(load, tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"problem": "1+1?", "answer": ""}])
    with pytest.raises(DataError, match=f"{path} holds no problem that can be.*1 missing answer"):
        load(data={"train": str(path)})


def test_settings_and_columns_that_have_no_effect_are_said(load, tmp_path, caplog):
    rows = [
        {"prompt": [{"role": "user", "content": f"{n}+1?"}], "reward_model": {"ground_truth": "1"}}
        for n in range(20)
    ]
    path = str(write_rows(tmp_path / "a.jsonl", [row | {"pass_rate": 0.5} for row in rows]))
    load(data={"train": path, "problems": 10, "instruction": "Add."})
    for said in ("`data.problems` is for", "`data.instruction` is not added", "no column `drawn`"):
        assert said in caplog.text
    caplog.clear()
    write_rows(tmp_path / "a.jsonl", [row | {"pass_rate": 0.5, "drawn": 4} for row in rows])
    load(data={"train": path})
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_too_few_problems_to_train_on_are_refused(load, write):
    path = write("a.jsonl", range(9))
    with pytest.raises(DataError, match=r"9 problems are too few to hold some out.*data\.heldout"):
        load(data={"train": path})
    with pytest.raises(DataError, match=f"every problem of {path} is held out"):
        load(data={"train": path, "heldout": path})


def test_prompts_over_the_limit_are_left_out_and_counted(load, write, caplog):
    path = write("a.jsonl", [*range(10), *range(1000, 1003)])  # 4 and 7 tokens
    held = write("held.jsonl", [50, 2000])
    with caplog.at_level(logging.WARNING):
        data = load(data={"train": path, "heldout": held, "max_prompt_tokens": 6})
    assert (len(data.train), questions(data.heldout)) == (10, ["50+1?"])
    assert "3 training prompts are over 6 tokens" in caplog.text
    assert "1 held-out prompts are over 6 tokens" in caplog.text
    assert data.prompts.keys() == keys(data.train) | keys(data.heldout)


def test_a_batch_larger_than_the_data_is_refused(load, write):
    train, heldout = write("a.jsonl", range(5)), write("b.jsonl", [90])
    sources = {"train": train, "heldout": heldout}
    assert len(load(data=sources, prompts={"batch_size": 5}).train) == 5
    said = r"5 training problems, fewer than the 6 prompts of a step.*--prompts.batch_size 5\)"
    with pytest.raises(ConfigError, match=said):
        load(data=sources, prompts={"batch_size": 6})
