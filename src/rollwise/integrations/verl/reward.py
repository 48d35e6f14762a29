"""rollwise's graders as a reward manager of verl."""

from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rollwise.grading.settings import make_grader
from rollwise.integrations.verl.settings import LAST_TURN, settings_of


class GraderRewardManager(RewardManagerBase):
    """Grades the model's last turn; each of verl's reward workers has a grader of its own."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **options: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        settings = settings_of(config)
        # verl starts `reward.num_workers` of these, so each needs only one process.
        alone = settings.grading.model_copy(update={"workers": 1})
        self.grader = make_grader(alone, settings.data, settings.plugin_folder)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Grade one response; see verl's `RewardManagerBase`."""
        graded: dict[str, Any] = await self.loop.run_in_executor(None, self._grade, data[-1:][0])
        return graded

    def _grade(self, row: Any) -> dict[str, Any]:
        responses = row.batch["responses"]
        length = int(row.batch["attention_mask"][-responses.shape[-1] :].sum())
        # Neither what a tool said, nor an answer that the model gave in an earlier turn.
        turn = row.non_tensor_batch.get("tool_extra_fields", {}).get(LAST_TURN, (0, length))
        text = self.tokenizer.decode(responses[slice(*turn)], skip_special_tokens=True)
        answer = str(row.non_tensor_batch["reward_model"]["ground_truth"])
        reward = float(self.grader.grade([text], [answer])[0])
        return {"reward_score": reward, "reward_extra_info": {"acc": reward}}
