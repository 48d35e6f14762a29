"""verl's asynchronous trainers: sampling goes on while the policy is updated.

A prompt's session lives in its worker, across updates. Each of its draws may have a policy of its
own, or several where an update has interrupted it; the log-probability of each token is that of the
policy that drew it. The step that uses a prompt tells the sampler and counts its draws, so what a
checkpoint finds under way is in no figure yet: verl's queue hands it over later if it has ended,
and asks for it again, with the same seeds, if it has not.
"""

from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from rollwise.errors import RunError
from rollwise.integrations.verl.client import ResumingClient
from rollwise.integrations.verl.reports import PromptReport
from rollwise.integrations.verl.settings import TRAINERS
from rollwise.integrations.verl.trainer import PoolTrainer
from rollwise.records import Row


class AsyncPoolTrainer(PoolTrainer):
    """What both asynchronous trainers have in common."""

    client = ResumingClient

    def _age_figures(self, reports: Sequence[PromptReport]) -> Row:
        """Say how many updates the weights of responses lack (docs/verl.md)."""
        weights = [pair for report in reports for pair in report.weights]
        ages = [self.global_steps - 1 - first for first, _ in weights]
        return {
            "steps_off_policy": max(ages, default=0),
            "steps_off_policy_mean": sum(ages) / max(len(ages), 1),
            "interrupted_draws": sum(first != last for first, last in weights),
            "prompts_under_way": len(self._under_way),
        }

    def _load_checkpoint(self) -> None:
        """Compare what verl's queue has under way with what the sampler was asked for.

        Raises:
            RunError: They differ, so that prompts would be lost or counted twice.
        """
        super()._load_checkpoint()
        rows = (tq.kv_list("train") or {}).get("train", {}) if self.global_steps else {}
        queued = {name for name, tag in rows.items() if tag.get("is_prompt")}
        if queued != self._under_way.keys():
            raise RunError(
                f"the checkpoint of step {self.global_steps} is not whole: verl's queue has "
                f"{len(queued)} prompts under way, and the sampler was asked for "
                f"{len(self._under_way)}; resume from another one"
            )
        # verl clears the rows of a step only after its checkpoint.
        used = [name for name in rows if name.split("_")[0] not in queued]
        if used:
            tq.kv_clear(keys=used, partition_id="train")


@register_trainer(TRAINERS["colocate_async"])
class ColocateAsyncTrainer(AsyncPoolTrainer, PPOTrainerColocateAsync):
    """verl's asynchronous trainer whose engines share the learner's GPUs."""

    mode = "colocate_async"


@register_trainer(TRAINERS["separate_async"])
class SeparateAsyncTrainer(AsyncPoolTrainer, PPOTrainerSeparateAsync):
    """verl's asynchronous trainer with engines on GPUs of their own."""

    mode = "separate_async"

    def get_llm_client(self) -> Any:
        """Return a client of verl's separate engines."""
        return self.standalone_server_manager.get_client(client_cls=self.client)
