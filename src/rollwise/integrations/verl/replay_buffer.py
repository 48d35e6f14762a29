"""verl's replay buffers, with the reports of the prompts behind their rows."""

from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from rollwise.errors import RunError
from rollwise.integrations.verl.reports import PromptReport
from rollwise.integrations.verl.settings import NAME

FAILURES = 1000
"""So many failed prompts within a step end an asynchronous run, instead of asking for others."""


class PoolReplayBuffer(ReplayBuffer):
    """Also collects the report of each prompt, and leaves out groups without signal."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # By verl's name of a prompt, for those last sampled for training that did not fail.
        self.reports: dict[str, PromptReport] = {}
        # Prompts that failed since the trainer last cleared it.
        self.failed: set[str] = set()

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, Any]
    ) -> KVBatchMeta:
        if partition_id == "train":
            tags = tq.kv_list(partition_id)[partition_id]
            found = {uid: tags[uid][NAME] for uid in selected_prompt_uids if NAME in tags[uid]}
            reports = [(uid, PromptReport(**tag)) for uid, tag in found.items()]
            self.reports = dict(sorted(reports, key=lambda item: str(item[1].key)))
            self.failed.update(set(selected_prompt_uids) - found.keys())
            if not found:
                raise _failed(f"all {len(self.failed)} prompts")
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        if partition_id != "train":
            return batch
        kept = rows_in_order(batch.keys, self.reports)
        if dropped := set(range(len(batch.keys))).difference(kept):
            tq.kv_clear(keys=[batch.keys[row] for row in dropped], partition_id=partition_id)
        keys, tags = ([whole[row] for row in kept] for whole in (batch.keys, batch.tags))
        return KVBatchMeta(partition_id=partition_id, keys=keys, tags=tags)


class AsyncPoolReplayBuffer(PoolReplayBuffer, ReplayBufferAsync):
    """For verl's asynchronous trainers: hands over groups, the oldest first, as they complete."""

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: Any
    ) -> Any:
        """Remember the prompts that have failed; verl leaves them out, and asks for others."""
        if partition_id == "train":
            self.failed.update(self.failure_keys[partition_id])
        if len(self.failed) >= FAILURES:
            raise _failed(f"{len(self.failed)} prompts of a step")
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)


def _failed(prompts: str) -> RunError:
    return RunError(f"{prompts} failed; the log of verl's agent loop workers says why")


def rows_in_order(names: list[str], reports: dict[str, PromptReport]) -> list[int]:
    """Sort rows, named `UID_INDEX_PART`, by prompt and draw; those without signal are left out.

    verl cannot train on nothing: if no group carries signal, the first one stays, with advantages
    of 0.
    """
    signal = [uid for uid, report in reports.items() if not report.dropped]
    signal = signal or [uid for uid, report in reports.items() if report.members][:1]
    position = {uid: place for place, uid in enumerate(signal)}
    parts = [(name.rsplit("_", 2), row) for row, name in enumerate(names)]
    kept = [(position[uid], int(i), int(j), row) for (uid, i, j), row in parts if uid in position]
    return [row for *_, row in sorted(kept)]
