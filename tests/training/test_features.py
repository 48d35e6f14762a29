"""Columns of the data and earlier runs, from the files to the belief of a run."""

import json

import pytest

from rollwise.cli import main
from rollwise.models.saved import list_checkpoints
from rollwise.records import RunFolder
from rollwise.tasks import make_running_sums


@pytest.fixture
def train(tmp_path, capsys):
    """Train for two steps on sums of two sources, with an embedding each; return the folder."""
    problems = make_running_sums(24, seed=0, max_terms=4)
    rows = [
        {
            "problem": problem.messages[0]["content"],
            "answer": problem.answer,
            "data_source": f"set {number % 2}",
            "embedding": [number / 24, 1.0, number**2 / 576],
        }
        for number, problem in enumerate(problems)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(name, *options, code=0):
        words = ["--data.train", str(data), "--grading.type", "exact", "--steps", "2"]
        words += ["--prompts.batch_size", "8", "--evaluation.problems", "2"]
        words += ["--evaluation.every", "0"]
        words += ["--engine.max_new_tokens", "8", "--learner.micro_batch_tokens", "4096"]
        folder = tmp_path / name
        assert main(["train", "--output", str(folder), *words, *options]) == code
        return folder

    return run


def names_of(folder):
    """The features that the newest checkpoint has learned weights of."""
    state = list_checkpoints(RunFolder(folder).checkpoints)[-1] / "state.json"
    return json.loads(state.read_text())["sampler"]["belief.features"].split(",")


def test_a_run_learns_from_the_columns_that_are_there_or_named_and_resumes(train):
    assert names_of(train("default")) == ["source", "prompt_tokens"]
    named = ("--belief.features", '["embedding", "source"]')
    first = train("named", *named)
    assert names_of(first) == ["embedding", "source"]
    assert train("named", *named, "--steps", "3") == first
    assert len((first / "metrics.jsonl").read_text().splitlines()) == 4


def test_a_column_that_the_data_lacks_is_refused_before_anything_is_written(train, capsys):
    folder = train("refused", "--belief.features", '["embeding"]', code=2)
    assert "names embeding; the data has source, subject" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not folder.exists()
