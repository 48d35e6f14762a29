"""verl's replay buffers, with the reports of the prompts behind their rows."""

from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from rollwise.errors import RunError
from rollwise.integrations.verl.reports import PromptReport
from rollwise.integrations.verl.settings import NAME

FAILURES = 1000
"""An asynchronous run ends after this many failed prompts within a step, instead of asking for
others."""


class _Pools:
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
        batch = super()._materialize_batch(  # type: ignore[misc]
            partition_id, selected_prompt_uids, partition_snapshot
        )
        if partition_id != "train":
            return batch
        kept = rows_in_order(batch.keys, self.reports)
        if dropped := set(range(len(batch.keys))).difference(kept):
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
        self.failed.update(eviction_reasons[2])
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
    signal = {uid for uid, report in reports.items() if not report.dropped}
    signal = signal or set([uid for uid, report in reports.items() if report.members][:1])
    position = {uid: place for place, uid in enumerate(reports) if uid in signal}
    kept = []
    for row, name in enumerate(names):
        uid, index, part = name.rsplit("_", 2)
        if uid in position:
            kept.append((position[uid], int(index), int(part), row))
    return [row for *_, row in sorted(kept)]
