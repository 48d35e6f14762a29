"""The forward pass in few operations, against the models' own code."""

import copy

import pytest
import torch
from closeness import assert_close
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rollwise.engines.attention import ATTENTION, Prefill, sharing_weights
from rollwise.engines.decoder import Decoder, ModelForward, forward_of

ROPE = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
KINDS = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 24, "attention_bias": True}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"mlp_bias": True, "hidden_act": "gelu"}),
    "untied": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": False}),
    "yarn": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": {"rope_type": "yarn", **ROPE}}),
    "dynamic": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "dynamic", **ROPE}},
    ),
}


def make_model(model_class, config_class, options):
    torch.manual_seed(0)
    model = model_class(
        config_class(
            vocab_size=31,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.15,
            **options,
        )
    )
    with torch.no_grad():  # biases begin at 0, norms at 1, which would hide that one is left out
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def logits_of(forward, keep):
    """Logits and the keys and values that are kept, of three rows of 20 tokens."""
    torch.manual_seed(1)
    ids, prefill = torch.randint(31, (3, 20)), Prefill()
    with torch.inference_mode():
        return forward(ids, torch.arange(20).expand(3, -1), prefill, keep), prefill.states


@pytest.mark.parametrize("keep", [1, torch.tensor([4, 19])])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_keys_and_values_are_those_of_the_models_own_code(kind, keep):
    twin = sharing_weights(make_model(*KINDS[kind]), ATTENTION)
    forward = forward_of(twin)
    assert isinstance(forward, Decoder)
    found, wanted = logits_of(forward, keep), logits_of(ModelForward(twin), keep)
    for part, other in zip(found, wanted, strict=True):
        assert_close(part, other)


def test_adapters_are_heeded():
    peft = pytest.importorskip("peft")
    plain = make_model(*KINDS["qwen2"])
    config = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(copy.deepcopy(plain), config).eval()
    twin = sharing_weights(adapted, ATTENTION)
    forward = forward_of(twin)
    assert isinstance(forward, Decoder)
    found, wanted = logits_of(forward, 1), logits_of(ModelForward(twin), 1)
    for part, other in zip(found, wanted, strict=True):
        assert_close(part, other)
    unadapted, _ = logits_of(forward_of(sharing_weights(plain, ATTENTION)), 1)
    assert not torch.allclose(found[0], unadapted, rtol=1e-2, atol=1e-2)


def test_models_of_other_architectures_run_by_their_own_code():
    mistral = make_model(MistralForCausalLM, MistralConfig, {})
    assert isinstance(forward_of(sharing_weights(mistral, ATTENTION)), ModelForward)
