"""A few of the architectures that `scripts/try_architectures.py` tries."""

import pytest


@pytest.fixture
def script(load_script):
    return load_script("try_architectures")


OTHER_WAY = "cannot be drawn from: its code in transformers gives one sequence other probabilities"


@pytest.mark.parametrize(
    "name",
    [
        *("llama", "gpt2", "qwen3", "cohere", "deepseek_v3", "gpt_oss"),
        *("gemma2", "bloom", "mamba", "qwen3_5_text"),  # in whole batches
        *("bart", "opt", "bert+decoder"),  # padding on the left would move positions
    ],
)
def test_engine_learner_and_plain_passes_agree(name, script):
    outcome, differences = script.examine(name)
    assert outcome == "agrees", differences
    assert len(differences.split()) == 3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bert", "BertLMHeadModel cannot be drawn from: its logits depend on later tokens"),
        ("rwkv", OTHER_WAY),
        ("roberta+decoder", OTHER_WAY),
        ("doge", "DogeForCausalLM attends to 8 chosen tokens (`keep_window_size`), and beyond"),
    ],
)
def test_a_model_that_would_differ_is_refused_before_a_run(name, reason, script, monkeypatch):
    monkeypatch.setitem(script.CHANGED, "doge", {"keep_window_size": 8})
    outcome, said = script.examine(name)
    assert outcome == "refused" and said.startswith("model.path: ") and reason in said
