"""rollwise's graders as verl's reward manager."""

from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rollwise.integrations.verl.settings import settings_of
from rollwise.training.run import make_grader


class GraderRewardManager(RewardManagerBase):
    """Grades as `grading` in rollwise's settings says; one grader for each of verl's workers."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **options: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        settings = settings_of(config)
        # verl starts `reward.num_workers` of these, so one process each is enough.
        alone = settings.grading.model_copy(update={"workers": 1})
        self.grader = make_grader(alone, settings.data)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Grade one response; see verl's `RewardManagerBase`."""
        graded: dict[str, Any] = await self.loop.run_in_executor(None, self._grade, data[-1:][0])
        return graded

    def _grade(self, row: Any) -> dict[str, Any]:
        responses = row.batch["responses"]
        length = int(row.batch["attention_mask"][-responses.shape[-1] :].sum())
        text = self.tokenizer.decode(responses[:length], skip_special_tokens=True)
        answer = str(row.non_tensor_batch["reward_model"]["ground_truth"])
        reward = float(self.grader.grade([text], [answer])[0])
        return {"reward_score": reward, "reward_extra_info": {"acc": reward}}
