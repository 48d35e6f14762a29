"""verl's replay buffer, with the reports of the prompts behind its rows."""

from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from rollwise.integrations.verl.reports import PromptReport, report_of
from rollwise.integrations.verl.settings import NAME


class PoolReplayBuffer(ReplayBuffer):
    """Also collects the report of each prompt, and leaves out groups without signal.

    Attributes:
        reports: verl's name of a prompt (`uid`) -> its report, for the prompts last sampled for
            training; those that failed have none.
        failed: The number of prompts that failed.
    """

    reports: dict[str, PromptReport]
    failed: int = 0

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, Any]
    ) -> KVBatchMeta:
        if partition_id != "train":
            return super()._materialize_batch(
                partition_id, selected_prompt_uids, partition_snapshot
            )
        tags = tq.kv_list(partition_id)[partition_id]
        found = {uid: tags[uid].get(NAME) for uid in selected_prompt_uids}
        reports = [(uid, report_of(tag)) for uid, tag in found.items() if tag is not None]
        self.reports = dict(sorted(reports, key=lambda item: str(item[1].key)))
        self.failed = len(found) - len(reports)
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        kept, dropped = rows_in_order(batch.keys, self.reports)
        if dropped:
            tq.kv_clear(keys=[batch.keys[row] for row in dropped], partition_id=partition_id)
        return KVBatchMeta(
            partition_id=partition_id,
            keys=[batch.keys[row] for row in kept],
            tags=[batch.tags[row] for row in kept],
        )


def rows_in_order(
    names: list[str], reports: dict[str, PromptReport]
) -> tuple[list[int], list[int]]:
    """Sort rows by prompt and draw, and separate those that are trained on from those left out.

    verl cannot train on nothing: if no group carries signal, the first one stays, with advantages
    of 0.

    Args:
        names: verl's name of each row, `UID_INDEX_PART`.
        reports: In the order that the prompts are to have.

    Returns:
        The places in `names` of the rows kept, and of those left out.
    """
    position = {uid: place for place, uid in enumerate(reports)}

    def order(row: int) -> tuple[int, int, int]:
        uid, index, part = names[row].rsplit("_", 2)
        return position[uid], int(index), int(part)

    rows = [row for row in range(len(names)) if names[row].split("_")[0] in position]
    rows.sort(key=order)
    signal = {uid for uid, report in reports.items() if not report.dropped}
    signal = signal or set([uid for uid, report in reports.items() if report.members][:1])
    kept = [row for row in rows if names[row].split("_")[0] in signal]
    return kept, sorted(set(range(len(names))) - set(kept))
