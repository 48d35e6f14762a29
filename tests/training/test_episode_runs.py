"""The built-in task of episodes: it trains in groups and by single draws, and resumes."""

import pytest

from rollwise.config import make_config, read_toml
from rollwise.errors import ConfigError
from rollwise.records import RunFolder

TOOL = {"data__train": "tool-sums", "data__max_terms": "6", "engine__max_new_tokens": "24"}
SINGLE = {
    "exit__type": "fixed_count",
    "exit__samples": "1",
    "advantage__baseline": "belief",
    "prompts__type": "worth",
}


@pytest.mark.parametrize("method", [{}, SINGLE], ids=["groups", "single"])
def test_a_run_of_episodes_that_was_stopped_resumes_to_the_same_end(
    train, tmp_path, metrics_of, method
):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(whole, **TOOL, **method) == 0
    assert train(stopped, **TOOL, **method, steps="2") == 0
    assert train(stopped, "--resume", **TOOL, **method) == 0
    steps, resumed = metrics_of(whole)[1:], metrics_of(stopped)[1:]
    assert resumed[-1] == steps[-1]
    assert "heldout" in resumed[1].keys() - steps[1].keys(), "it ended there at first"
    assert {k: v for k, v in resumed[1].items() if k in steps[1]} == steps[1]
    assert max(step["turns"] for step in steps) > 1
    assert sum(step["ends"]["done"] for step in steps) > 0
    rows = RunFolder(whole).read_samples()
    asked = [row for row in rows if row["turns"] > 1]
    for row in asked:
        said = row["response"].split("\n")[::2]  # the calculator says every second line
        assert len(said) == row["turns"]
        assert row["tokens"] == sum(map(len, said)) + row["turns"], "a newline ends each turn"
    assert asked


def test_the_example_says_what_it_plays(root):
    config = make_config(read_toml(root / "examples/episodes.toml"))
    assert (config.episode.type, config.model.path) == ("calculator", "tool-sums")
    assert config.grading.type == "exact" and config.episode.max_turns == 16
    with pytest.raises(ConfigError, match="max_turns"):
        make_config({"episode": {"max_turns": 0}})
