"""`rollwise compare --rewards`: recorded rewards replayed without a model."""

import json
import re

import numpy as np
import pytest
from row_files import write_rows

TOML = """
seeds = 6
rewards = "REWARDS"

[base]
prompts = {batch_size = 8}

[methods.GRPO]
method = "grpo"
exit = {samples = 2}

[methods."own | <b>rule"]
method = "reinforce_ada"
exit = {positives = 1, negatives = 1}
schedule = {size = 2, rounds = 8}
group = {size = 2}

[methods.single]
prompts = {type = "uniform"}
"""


@pytest.fixture
def methods(tmp_path, write):
    """Write rewards of 32 prompts and eight draws, and the methods; returns the methods' file."""

    def methods(change=("", ""), lengths=True):
        rng = np.random.default_rng(0)
        rows = [
            {"key": str(key), "reward": int(rng.binomial(1, rate))}
            | ({"tokens": int(rng.integers(5, 50))} if lengths else {})
            for key, rate in enumerate(rng.beta(0.5, 0.5, 32))
            for _ in range(8)
        ]
        rewards = write_rows(tmp_path / "rewards.jsonl", rows)
        return write(TOML.replace("REWARDS", str(rewards)).replace(*change))

    return methods


def test_what_a_replay_writes_and_says(tmp_path, methods, say):
    shown = say("compare", tmp_path / "out", methods())
    assert "32 prompts of 8 recorded responses" in shown
    line = "single: 8 prompts by uniform · single responses · objective linear · baseline belief"
    assert line in shown
    assert "It has not been shown to predict what training gains" in shown
    text = (tmp_path / "out/comparison.md").read_text(encoding="utf-8")
    assert re.search(r"^\| GRPO \| 8 \| 16 \| \d+ \| (\d+) → \1 % \| [\d.]+ \| 0 % \|$", text, re.M)
    assert re.search(r"^\| own \\\| <b>rule \| .* \| [1-9]\d* % \|$", text, re.M)
    assert re.search(r"^\| single \| 8 \| 8 \| \d+ \| – \| 8 \| 0 % \|$", text, re.M)
    content = json.loads((tmp_path / "out/comparison.json").read_text(encoding="utf-8"))
    assert content["baseline"] == "GRPO"
    own = content["methods"]["own | <b>rule"]
    assert [*own["replays"]] == ["recorded", "bootstrap"]
    assert [*own["replays"]["recorded"]] == [str(seed) for seed in range(6)]
    draws = [figures["draws"] for figures in own["replays"]["recorded"].values()]
    assert own["means"]["draws"]["value"] == np.mean(draws)
    assert len(set(draws)) > 1
    for said in ("other prompts like these", "not been shown to predict"):  # what signal is not
        assert said in shown and said in text
    first = (tmp_path / "out/comparison.json").read_bytes()
    say("compare", tmp_path / "out", "--resume")
    assert (tmp_path / "out/comparison.json").read_bytes() == first


def test_without_lengths_draws_are_the_cost(tmp_path, methods, say):
    shown = say("compare", tmp_path / "out", methods(lengths=False))
    text = (tmp_path / "out/comparison.md").read_text(encoding="utf-8")
    assert "| method | prompts | draws | zero variance |" in text
    assert "per 1,000 draws" in text
    assert "tokens" not in shown + text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("seeds = 6", "seeds = 6\ntokens = 9"), "`tokens` is for training, and with `rewards`"),
        (("seeds = 6", "seeds = 6\ntarget = 0.5"), "`target` is for training, and with `rewards`"),
        (("rewards.jsonl", "no.jsonl"), "no such file: .*no.jsonl"),
        (("batch_size = 8", "batch_size = 64"), "method `GRPO`: `prompts`: batch_size must be"),
    ],
)
def test_what_is_wrong_with_a_replay_is_said(tmp_path, methods, say, change, said):
    shown = say("compare", tmp_path / "out", methods(change), code=2)
    assert re.search(said, shown)
    assert not (tmp_path / "out").exists()
