"""Rewards of several functions, which see the rows, and a sampler that sees their columns."""

import json
import sys

import pyarrow.parquet as pq
import pytest
from row_files import write_rows
from small_runs import SMALL

from rollwise.cli import main
from rollwise.records import RunFolder
from rollwise.tasks import make_running_sums

MINE = """
from dataclasses import dataclass, field

from rollwise.prompts import FixedSetSampler


def bonus(response, answer, row):
    assert row["prompt"] == row["problem"] and row["data_source"] == "of mine"
    return {"score": row["worth"], "acc": 0, "length": len(response)}


@dataclass(eq=False)
class ByTable(FixedSetSampler):
    columns: dict = field(kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        worth = dict(zip(self.keys, self.columns["worth"], strict=True))
        self.worth = [{2: 0.0, 5: 1.0}[worth[key]] for key in self.keys]  # a table by key

    def choose(self, count, exclude):
        left = [place for place, out in enumerate(exclude) if not out]
        return sorted(left, key=self.worth.__getitem__)[:count]
"""

GRADING = [
    *("--grading.type", "function", "--grading.weights", '{"bonus": 0.1}'),
    *("--grading.functions", '{"right": "exact", "bonus": "mine_for_rewards:bonus"}'),
]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A file of sums with a column; the user's module is beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine_for_rewards.py").write_text(MINE)
    rows = [
        {"problem": p.question, "answer": p.answer, "worth": 5 if i % 2 else 2}
        for i, p in enumerate(make_running_sums(60, seed=3))
    ]
    return write_rows(tmp_path / "sums.jsonl", [{**row, "data_source": "of mine"} for row in rows])


def test_parts_acc_and_rows_reach_metrics_samples_and_the_report_and_a_resumed_run_is_equal(data):
    sampler = ["--prompts.type", "mine_for_rewards:ByTable"]
    given = [*GRADING, *sampler, *SMALL, "--data.train", str(data), "--group.zero_variance=keep"]
    assert main(["train", *given, "--output", "whole", "--steps", "2"]) == 0
    assert main(["train", *given, "--output", "halves", "--steps", "1"]) == 0
    assert main(["train", "--output", "halves", "--resume", "--steps", "2"]) == 0
    whole, halves = (RunFolder(data.parent / name) for name in ("whole", "halves"))
    for one, other in zip(whole.read_metrics(), halves.read_metrics(), strict=True):
        same = ("reward", "rewards", "loss", "tokens")
        assert {name: one.get(name) for name in same} == {name: other.get(name) for name in same}
    rows = whole.samples.read().to_pylist()
    assert rows == halves.samples.read().to_pylist()
    for row in rows:
        assert row["acc"] == row["rewards/right"] == (row["reward"] > 1.0)
        assert row["rewards/bonus"] == 2  # the sampler takes the others later
        assert row["reward"] == pytest.approx(row["rewards/right"] + 0.1 * row["rewards/bonus"])
        assert row["rewards/bonus/length"] == len(row["response"])
    first = whole.read_metrics()[1]
    assert first["rewards"].keys() == {"right", "bonus", "bonus/length", "acc"}
    assert first["reward"] == pytest.approx(first["rewards"]["acc"] + 0.2)
    visits = whole.visits.read().to_pylist()
    assert sum(row["correct"] for row in visits) == sum(row["acc"] for row in rows)
    assert "Parts of the reward" in (data.parent / "whole/report.html").read_text()


@pytest.mark.parametrize("command", ["evaluate", "prepare"])
def test_pass_rates_go_by_acc_where_rows_are_read_again(data, command):
    source = "--benchmarks" if command == "evaluate" else "--data.sources"
    given = [*GRADING, source, str(data), "--samples", "2", "--engine.max_new_tokens", "24"]
    assert main([command, *given, "--output", "out", "--data.problems=8"]) == 0
    parts = sorted((data.parent / "out").rglob("part-*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    assert {row["rewards/bonus"] for row in rows} == {2, 5}
    assert all(row["acc"] == row["rewards/right"] for row in rows)
    assert any(row["reward"] > row["acc"] == 0 for row in rows)
    summary = json.loads((data.parent / "out/summary.json").read_text())
    found = (
        summary["benchmarks"]["sums"]["avg@2"] if command == "evaluate" else summary["pass_rate"]
    )
    assert found["value"] == pytest.approx(sum(row["acc"] for row in rows) / len(rows))


def test_a_column_that_a_grader_needs_and_the_data_lack_is_named(data, capsys):
    (data.parent / "mine_for_rewards.py").write_text("def harder(r, a, topic, worth): return 1.0\n")
    sys.modules.pop("mine_for_rewards", None)
    given = ["--grading.type", "function", "--grading.function", "mine_for_rewards:harder"]
    assert main(["train", *given, *SMALL, "--data.train", str(data), "--output", "run"]) == 2
    assert "sums.jsonl: the grader needs `topic`; it has problem, answer, worth" in " ".join(
        capsys.readouterr().err.split()
    )
