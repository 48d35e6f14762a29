"""rollwise's graders as verl's reward manager."""

import asyncio
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl")

import torch
from omegaconf import OmegaConf

from rollwise.integrations.verl.reward import GraderRewardManager

pytestmark = pytest.mark.verl

MINE = """
def bonus(response, answer, prompt, topic, extra_info):
    if response == "broken":
        return None
    return {"score": len(topic), "acc": prompt == "1+1?", "index": extra_info["index"]}
"""


class Batch:
    """One row of verl's `DataProto`."""

    def __init__(self, **fields):
        ones = torch.ones(1, 2, dtype=torch.int64)
        self.batch = {"responses": ones[0], "attention_mask": ones[0]}
        self.non_tensor_batch = fields

    def __getitem__(self, place):
        return [self] if isinstance(place, slice) else self


@pytest.mark.parametrize("own", [False, True], ids=["a file of verl's", "of `rollwise verl`"])
def test_a_function_sees_the_row_and_says_acc_and_parts(tmp_path, monkeypatch, own):
    (tmp_path / "mine_for_verl.py").write_text(MINE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    functions = {"right": "exact", "bonus": "mine_for_verl:bonus"}
    grading = {"type": "function", "functions": functions, "correct": "bonus"}
    settings = {"grading": grading, "plugin_folder": str(tmp_path)}
    said = iter(["2", "broken"])
    tokenizer = SimpleNamespace(decode=lambda *_, **__: next(said))
    config = OmegaConf.create({"rollwise": {"settings": settings}})
    manager = GraderRewardManager(config, tokenizer, None)
    extra, columns = {"index": 7}, {"topic": "sums"}
    if own:
        extra, columns = {"features": json.dumps({**columns, "extra_info": extra})}, {}
    raw_prompt = np.array([{"role": "user", "content": "1+1?"}], dtype=object)
    fields = {"raw_prompt": raw_prompt, "extra_info": extra, **columns}
    row = Batch(**fields, reward_model={"ground_truth": "2"})

    async def both():
        return [await manager.run_single(row) for _ in range(2)]

    right, failed = asyncio.run(both())
    manager.grader.close()
    assert right["reward_score"] == 5.0
    info = {"right": 1.0, "bonus": 4.0, "bonus/index": 7.0, "acc": 1.0}
    assert right["reward_extra_info"] == info
    assert (failed["reward_score"], failed["reward_extra_info"].keys()) == (0.0, info.keys())
