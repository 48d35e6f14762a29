"""The memory that a run will need: predicted, and used for defaults and errors."""

import logging

import pytest
import torch
from transformers import Qwen2Config

from rollwise.config import TrainConfig, make_settings
from rollwise.errors import ModelError
from rollwise.training import memory
from rollwise.training.memory import LiveTensors, fitted_learner, memory_of

QWEN = {
    "vocab_size": 151_936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
"""The shape of Qwen2.5-1.5B, which has 1,543,714,304 weights."""
WEIGHTS = 1_543_714_304


def settings_of(**sections):
    return make_settings(TrainConfig, sections)


def qwen(layers=28):
    return Qwen2Config(**QWEN | {"num_hidden_layers": layers})


def test_what_a_model_of_real_size_needs_on_a_gpu():
    """Weights by arithmetic; activations as measured: 121,912 bytes a token and layer."""
    plain = settings_of(
        model={"gradient_checkpointing": False}, learner={"micro_batch_tokens": 16_384}
    )
    need = memory_of(plain, qwen(), on_gpu=True)
    assert need.held["weights"] == pytest.approx(4 * WEIGHTS, rel=1e-3)
    assert need.held["optimizer"] == 2 * need.learning["gradients"] == 8 * WEIGHTS
    assert need.held["engine's copy"] == 2 * WEIGHTS
    activations = 121_912 * 28 * 16_384
    casts = 2 * WEIGHTS
    found = need.learning["activations and logits"]
    assert found == pytest.approx(activations + casts + 1.3e9, rel=0.05)
    recomputed = memory_of(settings_of(learner={"micro_batch_tokens": 16_384}), qwen(), on_gpu=True)
    assert recomputed.learning["activations and logits"] < found / 5


def test_adapters_have_no_large_gradients_nor_a_large_optimizer():
    config = settings_of(model={"lora_rank": 8, "frozen_dtype": "bfloat16"})
    need, all_weights = (memory_of(each, qwen(2), True) for each in (config, settings_of()))
    assert need.held["weights"] == pytest.approx(all_weights.held["weights"] / 2, rel=0.02)
    assert need.held["optimizer"] < all_weights.held["optimizer"] / 50


def test_each_thread_has_its_own_activations_and_gradients():
    one, two = (memory_of(settings_of(), qwen(2), False, threads) for threads in (1, 2))
    assert two.learning["gradients"] == 4 * one.learning["gradients"]
    assert two.peak > one.peak


def test_micro_batches_are_as_large_as_a_gpu_allows(caplog):
    config = settings_of(engine={"max_new_tokens": 64, "batch_size": 16})
    most = memory_of(config, qwen(4), True).peak
    with caplog.at_level(logging.INFO):
        assert fitted_learner(config, qwen(4), 2 * most).micro_batch_tokens == 16_384
    assert "micro-batches of 16384 tokens; this run needs " in caplog.text
    assert fitted_learner(config, qwen(4), most).micro_batch_tokens < 16_384
    given = settings_of(learner={"micro_batch_tokens": 5000})
    assert fitted_learner(given, qwen(2), 80 * 10**9).micro_batch_tokens == 5000
    with pytest.raises(ModelError, match=r"the GPU has 4\.0 GB, and this run needs .*\n.*gradient"):
        fitted_learner(config, qwen(4), 4 * 10**9)


def test_a_model_that_does_not_run_without_data_keeps_its_settings(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("data-dependent")

    monkeypatch.setattr(memory, "_learn", fail)
    config = settings_of()
    assert fitted_learner(config, qwen(1), 10**9) == config.learner
    assert "cannot be predicted (RuntimeError: data-dependent)" in caplog.text


def test_the_peak_of_live_tensors_is_counted_once():
    with LiveTensors() as live, live.peak_of() as found:
        first = torch.zeros(1000)
        view = first.view(10, 100)
        del first, view
        second = torch.zeros(500) + 1
        del second
    assert found == [4000]
