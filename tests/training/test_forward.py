"""Chunked log-probabilities and packed rows, against all logits at once and padded rows."""

import copy
import inspect

import numpy as np
import pytest
import torch
import transformers
from closeness import assert_close
from plain_learner import changed, learned, make_learner, random_examples
from plain_pytorch import plain_logprobs
from torch import nn

from rollwise.errors import ModelError
from rollwise.training import forward as forward_module
from rollwise.training import packing
from rollwise.training.forward import Forward, token_logprobs
from rollwise.training.packing import KNOWN

SIZES = [(3, 5, 1.0), (1, 2, -0.5), (6, 1, 0.25), (9, 8, -1.0), (6, 6, 2.0), (2, 11, 40.0)]
"""Prompt and response tokens, and the advantage."""

SHAPE = {
    "vocab_size": 17,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}

CHANGED = {
    "Mistral": {"sliding_window": 4},
    "Granite": {"logits_scaling": 3.0},
    "Gemma2": {"final_logit_softcapping": 30.0},
}
"""What makes an architecture differ from the others in attention or in logits."""


@pytest.fixture(autouse=True)
def chunks_of_3_tokens(monkeypatch):
    monkeypatch.setattr(forward_module, "CHUNK_LOGITS", 3 * 17)


def make(kind, **changed):
    """A random model of an architecture, in float64."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SHAPE | CHANGED.get(kind, {}) | changed)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval().double()


def make_examples():
    """Of the longer ones an environment has drawn every third token."""
    return [
        changed(e, mask=np.arange(e.response.drawn) % 3 < 2) if e.response.drawn > 7 else e
        for e in random_examples(SIZES)
    ]


@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 11, 12])
def test_chunks_change_neither_values_nor_gradients(chunk, with_entropy):
    """log softmax(Wh/T) at the token, and −Σ π log π, all at once."""
    torch.manual_seed(0)
    head = nn.Linear(6, 19).double()
    states = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    tokens, slope = torch.randint(19, (11,)), torch.randn(2, 11, dtype=torch.float64)
    rows = (head(states) / 0.7).log_softmax(dim=1)
    wanted = rows.gather(1, tokens[:, None]).squeeze(1), -(rows.exp() * rows).sum(dim=1)
    if not with_entropy:
        wanted = wanted[0], torch.zeros(11, dtype=torch.float64)
    found = token_logprobs(head, states, tokens, 0.7, with_entropy, chunk)
    assert_close([f.detach() for f in found], [w.detach() for w in wanted], relative=1e-12)
    inputs = [states, *head.parameters()]
    gradients = [
        torch.autograd.grad(sum(s @ v for s, v in zip(slope, values, strict=True)), inputs)
        for values in (found, wanted)
    ]
    assert_close(*gradients, relative=1e-12)


@pytest.mark.parametrize(("chunk", "calls"), [(4, [4, 4, 3]), (11, [11])])
def test_no_more_than_a_chunk_of_logits_is_held(chunk, calls):
    """Each chunk is made again on the way back, unless there is only one."""
    made = []

    def head(states):
        made.append(len(states))
        return states @ weight

    weight = torch.randn(6, 19, requires_grad=True)
    tokens = torch.zeros(11, dtype=torch.long)
    logprobs, _ = token_logprobs(head, torch.randn(11, 6), tokens, 1.0, True, chunk)
    assert made == calls
    logprobs.sum().backward()
    assert sorted(made) == sorted(calls * (2 if len(calls) > 1 else 1))


def learned_with(model, examples, **settings):
    learner = make_learner(copy.deepcopy(model), 0.8, threads=1, **settings)
    return *learned(learner, examples), learner


def own_logprobs(model, example):
    """log π of the tokens that the model drew."""
    mask = example.response.mask
    drawn = slice(None) if mask is None else torch.from_numpy(mask)
    return plain_logprobs(model, example, 0.8)[drawn]


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize("kind", sorted(name.removesuffix("ForCausalLM") for name in KNOWN))
def test_packed_rows_teach_what_padded_ones_do(kind, by_kernel, monkeypatch):
    """The kernel, in whose place is a reference in float64, is asked for causal attention."""
    model, examples, calls = make(kind), make_examples(), []
    metrics, (wanted,), _ = learned_with(model, examples, packed=False, micro_batch_tokens=30)
    if by_kernel:
        monkeypatch.setattr(packing, "varlen_attn", reference_kernel(calls))
        monkeypatch.setattr(packing, "_kernel_precision", lambda query: query.dtype)
    packed_metrics, (found,), learner = learned_with(model, examples, micro_batch_tokens=40)
    assert learner._run.packed
    assert bool(calls) == by_kernel
    assert_close(found, wanted, relative=1e-5)  # norms and positions are float32 in `transformers`
    for found in (packed_metrics, metrics):
        del found["policy_change"]  # by an update of Adam's, which goes by signs at first
    assert packed_metrics == pytest.approx(metrics, rel=1e-5, abs=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["Qwen2", "Granite", "Gemma2", "Cohere"])
def test_logprobs_are_those_of_the_models_own_logits(kind, caplog):
    """Also where more is done than the last linear layer does, and only shows in grown weights."""
    model, examples = make(kind, initializer_range=0.01), make_examples()
    run = Forward(model, 0.8, packed=True)
    for weights in model.parameters():
        if weights.ndim > 1:
            weights *= 100
    assert own_logprobs(model, examples[0]).min() < -3.5  # log 17 is 2.8
    found, _ = run(examples, with_entropy=False)
    wanted = torch.cat([own_logprobs(model, example) for example in examples])
    assert_close(found, wanted, relative=1e-5)
    assert run.by_chunks == (kind == "Qwen2")
    assert ("all logits of a micro-batch are held" in caplog.text) == (kind != "Qwen2")


def test_a_model_without_finite_logits_is_refused():
    model = make("Qwen2")
    torch.nn.init.constant_(model.lm_head.weight, torch.nan)
    with pytest.raises(ModelError, match="cannot be learned from: its logits are not finite"):
        Forward(model, 0.8, packed=True)


@pytest.mark.parametrize("tied", [False, True])
def test_adapters_of_the_head_and_tied_embeddings_are_trained(tied):
    peft = pytest.importorskip("peft")
    model = make("Qwen2", tie_word_embeddings=tied)
    if not tied:
        config = peft.LoraConfig(r=2, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, config).double()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # they begin at 0, and lora_A would get no gradient
                torch.nn.init.normal_(parameter)
    examples = make_examples()
    twin = copy.deepcopy(model)
    gains = [e.advantage * own_logprobs(twin, e).sum() for e in examples]
    loss = -sum(gains) / sum(e.response.drawn for e in examples)
    wanted = torch.autograd.grad(loss, [p for p in twin.parameters() if p.requires_grad])
    _, (found,), learner = learned_with(model, examples, importance_cap=0)
    assert learner._run.packed
    assert_close(found, list(wanted), relative=1e-5)


def test_an_architecture_that_is_not_known_is_padded(monkeypatch):
    model = make("Gemma2")
    run = Forward(model, 1.0, packed=True)
    assert not run.packed
    assert run.model.config._attn_implementation == model.config._attn_implementation
    monkeypatch.setattr("rollwise.training.packing.KNOWN", {"Gemma2ForCausalLM"})
    with pytest.raises(ModelError, match=r"needs softcap, which .*learner\.packed"):
        Forward(model, 1.0, packed=True)(make_examples(), with_entropy=False)


def reference_kernel(calls):
    """A block mask in the place of torch's kernel."""

    def attend(*args, **named):
        real = inspect.signature(varlen.varlen_attn).bind(*args, **named)
        real.apply_defaults()
        given = real.arguments
        query, key, value = (given[name] for name in ("query", "key", "value"))
        ends = given["cu_seq_q"]
        assert given["cu_seq_k"] is ends and ends.dtype == torch.int32
        assert given["max_q"] == given["max_k"] == int(ends.diff().max())
        calls.append(given)
        places = torch.arange(len(query))
        owner = torch.bucketize(places, ends[1:], right=True)
        ages = places[:, None] - places
        left, right = given["window_size"]  # on either side of a token, which counts in neither
        mask = (owner[:, None] == owner) & (ages <= (left if left >= 0 else len(query)))
        mask &= ages >= -(right if right >= 0 else len(query))
        found = torch.nn.functional.scaled_dot_product_attention(
            *(s.transpose(0, 1)[None] for s in (query, key, value)),
            attn_mask=mask,
            scale=given["scale"],
            enable_gqa=given["enable_gqa"],
        )[0].transpose(0, 1)
        return found

    varlen = pytest.importorskip("torch.nn.attention.varlen")
    return attend


@pytest.mark.parametrize("size", [8, 12, 256, 264])
@pytest.mark.parametrize("has_kernel", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_kernel_is_used_where_it_can_be(size, has_kernel, dtype, monkeypatch):
    monkeypatch.setattr(packing, "varlen_attn", reference_kernel([]))
    monkeypatch.setattr(packing, "_has_kernel", lambda device: has_kernel)
    found = packing._kernel_precision(torch.zeros(1, 2, 3, size, dtype=dtype))
    fits = has_kernel and size in (8, 256) and dtype != torch.float32
    assert found == (dtype if fits else None)
