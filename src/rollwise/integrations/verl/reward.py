"""rollwise's graders as a reward manager of verl."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rollwise.grading.settings import make_grader
from rollwise.integrations.verl.settings import LAST_TURN, settings_of
from rollwise.sampling import Score


class GraderRewardManager(RewardManagerBase):
    """Grades the model's last turn; each of verl's reward workers has a grader of its own."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **options: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        settings = settings_of(config)
        # verl starts `reward.num_workers` of these, so each needs only one process.
        alone = replace(settings.grading, workers=1)
        self.grader = make_grader(alone, settings.data, settings.plugin_folder)
        self.parts: dict[str, float] = {}

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Grade one response; see verl's `RewardManagerBase`."""
        row = data[-1:][0]
        responses = row.batch["responses"]
        length = int(row.batch["attention_mask"][-responses.shape[-1] :].sum())
        # Neither what a tool said, nor an answer that the model gave in an earlier turn.
        turn = row.non_tensor_batch.get("tool_extra_fields", {}).get(LAST_TURN, (0, length))
        text = self.tokenizer.decode(responses[slice(*turn)], skip_special_tokens=True)
        answer = str(row.non_tensor_batch["reward_model"]["ground_truth"])
        score = Score.of(await self.grader.reward(text, answer, row_of(row.non_tensor_batch)))
        self.parts |= dict.fromkeys(score.parts, 0.0)  # verl expects the same names each time
        info = {**self.parts, **score.parts, "acc": score.acc}
        return {"reward_score": float(score), "reward_extra_info": info}


def row_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a grader can be given of a row of verl's besides the answer."""
    extra = fields.get("extra_info") or {}
    columns = json.loads(extra.get("features") or "{}")  # in files that `rollwise verl` wrote
    messages = [dict(message) for message in fields.get("raw_prompt", ())]
    prompt = messages[-1]["content"] if messages else ""
    return {**fields, **columns, "prompt": prompt, "messages": messages}
