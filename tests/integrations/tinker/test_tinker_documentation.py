"""The page on Tinker: its file is the example, which trains."""

import re

import pytest

INSTEAD = {  # of what the local server and this machine do not have
    "--steps": "2",
    "--model.path": "running-sums",
    "--data.train": "running-sums",
    "--data.instruction": "",
    "--prompts.batch_size": "4",
    "--engine.max_new_tokens": "32",
    "--evaluation.problems": "4",
}


def test_the_page_shows_the_example_as_it_is(root):
    page = (root / "docs/tinker.md").read_text()
    [shown] = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert shown == (root / "examples/tinker.toml").read_text()


@pytest.mark.tinker
def test_the_example_trains(root, tinker_url, tmp_path, train_at_tinker, metrics_of):
    assert train_at_tinker(tmp_path / "run", str(root / "examples/tinker.toml"), INSTEAD) == 0
    assert [line["trained_groups"] > 0 for line in metrics_of(tmp_path / "run")[1:]] == [True] * 2
