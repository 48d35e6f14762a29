"""verl's replay buffers, with the reports of the prompts behind their rows."""

from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from rollwise.errors import RunError
from rollwise.integrations.verl.reports import PromptReport
from rollwise.integrations.verl.settings import LOST, NAME

FAILURES = 100
"""After so many failed prompts in a row an asynchronous run ends, instead of asking for others."""

WHERE = "the log of verl's agent loop workers says why"


class _Pools:
    """Also collects the report of each prompt, and leaves out groups without signal."""

    _failed_in_a_row = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # By verl's name of a prompt, for those last sampled for training that did not fail.
        self.reports: dict[str, PromptReport] = {}
        # Prompts that failed since the trainer last cleared it -> their lost draws.
        self.failed: dict[str, int] = {}

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, Any]
    ) -> KVBatchMeta:
        if partition_id != "train":
            untouched: KVBatchMeta = super()._materialize_batch(  # type: ignore[misc]
                partition_id, selected_prompt_uids, partition_snapshot
            )
            return untouched
        self._failed_in_a_row = 0
        tags = tq.kv_list(partition_id)[partition_id]
        found = {uid: tags[uid].get(NAME) for uid in selected_prompt_uids}
        reports = [(uid, PromptReport(**tag)) for uid, tag in found.items() if tag is not None]
        self.reports = dict(sorted(reports, key=lambda item: str(item[1].key)))
        self.failed |= {uid: tags[uid].get(LOST, 0) for uid, tag in found.items() if tag is None}
        if not reports:
            raise RunError(f"all {len(found)} prompts failed; {WHERE}")
        batch = super()._materialize_batch(  # type: ignore[misc]
            partition_id, selected_prompt_uids, partition_snapshot
        )
        kept, dropped = rows_in_order(batch.keys, self.reports)
        if dropped:
            tq.kv_clear(keys=[batch.keys[row] for row in dropped], partition_id=partition_id)
        return KVBatchMeta(
            partition_id=partition_id,
            keys=[batch.keys[row] for row in kept],
            tags=[batch.tags[row] for row in kept],
        )


class PoolReplayBuffer(_Pools, ReplayBuffer):
    """For verl's synchronous trainer."""


class AsyncPoolReplayBuffer(_Pools, ReplayBufferAsync):
    """For verl's asynchronous trainers: hands over groups, the oldest first, as they complete."""

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: Any
    ) -> Any:
        """Remember the prompts that have failed; verl leaves them out, and asks for others."""
        if failed := eviction_reasons[2]:
            tags = tq.kv_list(partition_id)[partition_id]
            self.failed |= {uid: tags[uid].get(LOST, 0) for uid in failed}
            self._failed_in_a_row += len(failed)
            if self._failed_in_a_row >= FAILURES:
                raise RunError(f"{self._failed_in_a_row} prompts failed in a row; {WHERE}")
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)


def rows_in_order(
    names: list[str], reports: dict[str, PromptReport]
) -> tuple[list[int], list[int]]:
    """Sort rows, named `UID_INDEX_PART`, by prompt and draw; returns the kept and the left out.

    verl cannot train on nothing: if no group carries signal, the first one stays, with advantages
    of 0.
    """
    signal = {uid for uid, report in reports.items() if not report.dropped}
    signal = signal or set([uid for uid, report in reports.items() if report.members][:1])
    position = {uid: place for place, uid in enumerate(reports) if uid in signal}
    kept, dropped = [], []
    for row, name in enumerate(names):
        uid, index, part = name.rsplit("_", 2)
        if uid in position:
            kept.append((position[uid], int(index), int(part), row))
        else:
            dropped.append(row)
    return [row for *_, row in sorted(kept)], dropped
