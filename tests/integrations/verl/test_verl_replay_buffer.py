"""verl's replay buffers hand over the rows that are trained on, with the reports behind them."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest

pytest.importorskip("verl")

from reports_by_hand import make_report
from transfer_queue import KVBatchMeta

from rollwise.errors import RunError
from rollwise.integrations.verl import replay_buffer
from rollwise.integrations.verl.replay_buffer import (
    AsyncPoolReplayBuffer,
    PoolReplayBuffer,
    rows_in_order,
)

pytestmark = pytest.mark.verl


def test_rows_are_sorted_by_prompt_and_draw_and_those_without_signal_left_out():
    reports = {"v": make_report("a"), "u": make_report("b"), "w": make_report("c", dropped=True)}
    names = ["u_3_0", "w_0_0", "v_11_0", "v_2_1", "v_2_0", "u_1_0"]
    assert rows_in_order(names, reports) == [4, 3, 2, 5, 0]
    # Where no prompt has signal, the first one stays.
    reports = {"u": make_report("a", dropped=True), "v": make_report("b", dropped=True)}
    assert rows_in_order(["v_0_0", "u_0_0", "u_1_0"], reports) == [1, 2]
    # A group of correct responses alone may have no member.
    reports["u"] = make_report("a", dropped=True, members=[])
    assert rows_in_order(["v_0_0"], reports) == [0]


@pytest.fixture
def queue(monkeypatch):
    """TransferQueue with three prompts: two sampled, one failed."""
    reports = {"v": make_report("a"), "u": make_report("b", dropped=True)}
    tags = {uid: {"rollwise": asdict(report)} for uid, report in reports.items()}
    cleared = []
    queue = SimpleNamespace(
        kv_list=lambda partition: {partition: {**tags, "f": {"status": "failure"}}},
        kv_clear=lambda keys, partition_id: cleared.append((partition_id, keys)),
        cleared=cleared,
        reports=reports,
    )
    monkeypatch.setattr(replay_buffer, "tq", queue)
    monkeypatch.setattr(
        replay_buffer.ReplayBuffer,
        "_materialize_batch",
        lambda self, partition, uids, rows: KVBatchMeta(
            partition_id=partition, keys=list(rows), tags=list(rows.values())
        ),
    )
    return queue


def test_the_buffer_hands_over_reports_and_rows(queue):
    buffer = object.__new__(PoolReplayBuffer)
    buffer.failed = set()
    rows = {f"{uid}_{i}_0": {"seq_len": i} for uid in "uv" for i in (1, 0)}
    batch = buffer._materialize_batch("train", ["u", "v", "f"], rows)
    assert (batch.keys, batch.tags) == (["v_0_0", "v_1_0"], [{"seq_len": 0}, {"seq_len": 1}])
    assert buffer.reports == queue.reports
    assert buffer.failed == {"f"}
    assert queue.cleared == [("train", ["u_1_0", "u_0_0"])]
    with pytest.raises(RunError, match="all 1 prompts failed; the log of verl's agent loop"):
        buffer._materialize_batch("train", ["f"], {})
    queue.cleared.clear()  # rows of a validation are left as they are
    assert buffer._materialize_batch("val", ["x"], {"x_0_0": {}}).keys == ["x_0_0"]
    assert queue.cleared == []


def test_prompts_that_failed_are_remembered(queue, monkeypatch):
    buffer = object.__new__(AsyncPoolReplayBuffer)
    buffer.failed = set()
    base = replay_buffer.ReplayBufferAsync
    monkeypatch.setattr(base, "_evict_terminal_groups", lambda *arguments: "verl's")
    buffer.failure_keys = {"train": {"f"}}
    assert buffer._evict_terminal_groups(3, "train", ()) == "verl's"
    assert buffer.failed == {"f"}
    buffer.failure_keys = {"train": set(range(999))}
    with pytest.raises(RunError, match="1000 prompts of a step failed"):
        buffer._evict_terminal_groups(3, "train", ())
