"""The built-in engine, by slots and in whole batches, against one draw at a time."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import END, LIMIT, PROMPTS, as_tokens, complete, make_draws, make_model, uniforms
from transformers import GenerationConfig

from rollwise.engines.continuous import ContinuousBatch
from rollwise.engines.ends import end_tokens
from rollwise.engines.tokens import TokenSampler, sample
from rollwise.engines.transformers import TransformersEngine
from rollwise.errors import ModelError
from rollwise.sampling import Draw
from rollwise.training.forward import of_logits

SYMBOLS = dict(enumerate("0123456789+-?= ", start=2))
both_ways = pytest.mark.usefixtures("each_way")
SMALLEST = 2.0**-53


@torch.no_grad()
def reference(model, prompt, draw, limit=LIMIT, temperature=1.0):
    """One response: a full forward pass for each token, then F⁻¹(u), in double precision."""
    tokens, logprobs = [], []
    for uniform in uniforms(draw, limit):
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1].double() / temperature
        probabilities = logits.softmax(dim=0).numpy()
        tokens.append(int(np.flatnonzero(probabilities.cumsum() >= uniform)[0]))
        logprobs.append(float(np.log(probabilities[tokens[-1]])))
        if tokens[-1] == END:
            break
    return tokens, logprobs


@pytest.mark.parametrize(
    ("kind", "temperature"), [("qwen2", 1.0), ("qwen3", 0.6), ("llama", 0.6), ("window", 1.0)]
)
def test_tokens_and_logprobs_are_those_of_the_reference(kind, temperature, tokenizer, each_way):
    model = make_model(kind)
    engine = TransformersEngine(model, tokenizer, LIMIT, temperature)
    assert isinstance(engine._batch, ContinuousBatch) is (each_way == "slots")
    done = complete(engine, make_draws(6))
    assert len(done) == 18
    for draw, completion in done.items():
        tokens, logprobs = reference(model, PROMPTS[draw.key], draw, temperature=temperature)
        assert completion.tokens == tokens
        np.testing.assert_allclose(completion.logprobs, logprobs, atol=1e-4)
        assert completion.logprobs.dtype == np.float32


@both_ways
def test_what_a_model_does_in_training_and_wishes_of_its_config_change_no_response(
    model, tokenizer
):
    """Dropout and recomputation are the learner's alone."""
    learning, wishful = make_model(attention_dropout=0.5).train(), copy.deepcopy(model)
    learning.gradient_checkpointing_enable()
    wishes = {"repetition_penalty": 5.0, "top_k": 1, "do_sample": True, "suppress_tokens": [5, 6]}
    wishful.generation_config = GenerationConfig(eos_token_id=END, use_cache=False, **wishes)
    wanted, *found = (
        as_tokens(complete(TransformersEngine(each, tokenizer, LIMIT), make_draws(5)))
        for each in (model, learning, wishful)
    )
    assert found == [wanted] * 2
    assert learning.training


@both_ways
def test_a_prompt_must_leave_room_in_the_context(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT)
    prompts = {"fits": [5] * 63, "full": [5] * 64, "empty": []}
    for key in ("full", "empty"):
        with pytest.raises(ValueError, match=rf"prompt '{key}' must have 1 to 63 tokens.*it has "):
            complete(engine, make_draws(1, [key]), prompts)
    done = complete(engine, make_draws(3, ["fits"]), prompts).values()
    assert [len(response.tokens) for response in done] == [1, 1, 1]
    assert all(response.truncated is (response.tokens != [END]) for response in done)


@both_ways
def test_a_response_ends_with_its_end_token_or_is_cut(model, tokenizer):
    done = complete(TransformersEngine(model, tokenizer, LIMIT), make_draws(60)).values()
    for completion in done:
        ended = completion.tokens[-1] == END
        assert END not in completion.tokens[:-1]
        assert completion.truncated is not ended
        assert ended or len(completion.tokens) == LIMIT
        assert len(completion.logprobs) == len(completion.tokens)
        assert completion.text == "".join(SYMBOLS.get(token, "") for token in completion.tokens)
    # All that can happen did: cut, ended early, and ended by the last token that was allowed.
    kinds = {(completion.truncated, len(completion.tokens) == LIMIT) for completion in done}
    assert kinds == {(True, True), (False, False), (False, True)}


@both_ways
def test_every_end_token_of_the_model_and_of_the_tokenizer_counts(model, tokenizer):
    other = copy.deepcopy(model)
    other.generation_config = GenerationConfig(eos_token_id=[4, 7])
    assert end_tokens(other.generation_config, tokenizer) == {END, 4, 7}
    done = complete(TransformersEngine(other, tokenizer, 40), make_draws(20)).values()
    last = {completion.tokens[-1] for completion in done if not completion.truncated}
    assert last == {END, 4, 7}
    assert not any({END, 4, 7} & set(completion.tokens[:-1]) for completion in done)


def test_without_an_end_token_there_is_an_error(model, tokenizer):
    endless, mute = copy.deepcopy(model), copy.deepcopy(tokenizer)
    endless.generation_config = GenerationConfig(eos_token_id=None)
    mute.eos_token = None
    assert end_tokens(endless.generation_config, tokenizer) == {END}
    assert end_tokens(model.generation_config, mute) == {END}
    endless.generation_config.eos_token_id = "1"
    with pytest.raises(ModelError, match="must be a number or a list of numbers, got '1'"):
        end_tokens(endless.generation_config, tokenizer)
    endless.generation_config.eos_token_id = -1
    with pytest.raises(ModelError, match=r"nothing ends a response.*set `eos_token_id` in its gen"):
        TransformersEngine(endless, mute, LIMIT)


@both_ways
def test_an_engine_takes_over_the_values_of_weights_and_not_the_tensors(model, tokenizer):
    draws, learner = make_draws(5), make_model(seed=1)
    engine = TransformersEngine(copy.deepcopy(model), tokenizer, LIMIT)
    engine.load_weights(learner.state_dict())
    new = as_tokens(complete(engine, draws))
    assert new == as_tokens(complete(TransformersEngine(learner, tokenizer, LIMIT), draws))
    # What it shares with the learner it sees at once, and leaves alone.
    shared = TransformersEngine(learner, tokenizer, LIMIT)
    with torch.no_grad():
        learner.lm_head.weight.zero_()
    assert as_tokens(complete(engine, draws)) == new != as_tokens(complete(shared, draws))
    before = {name: (t.data_ptr(), t._version) for name, t in learner.state_dict().items()}
    shared.load_weights(learner.state_dict())
    assert before == {name: (t.data_ptr(), t._version) for name, t in learner.state_dict().items()}
    half = TransformersEngine(copy.deepcopy(model).to(torch.bfloat16), tokenizer, LIMIT)
    half.load_weights(learner.state_dict())
    for own, wanted in zip(half.model.parameters(), learner.parameters(), strict=True):
        assert torch.equal(own, wanted.to(torch.bfloat16))


def test_inverting_the_distribution_by_hand():
    """Probabilities 0, .5, .25, .25: cumulative 0, .5, .75, 1."""
    logits = torch.tensor([[-torch.inf, 0.5, 0.25, 0.25]])
    logits[0, 1:] = logits[0, 1:].log()
    uniforms = torch.tensor([SMALLEST, 0.25, 0.4999, 0.5001, 0.7499, 0.7501, 1.0]).double()
    tokens, logprobs = sample(logits.expand(7, -1), uniforms)
    assert tokens.tolist() == [1, 1, 1, 2, 2, 3, 3]
    np.testing.assert_allclose(logprobs.exp(), [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25], rtol=1e-6)


def test_logits_of_half_precision_are_divided_in_full_as_the_learner_does():
    logits = torch.randn(50, 17, generator=torch.manual_seed(0)).to(torch.bfloat16)
    tokens, logprobs = TokenSampler(None, 9, 4, 0.7, torch.tensor([1])).sample(
        logits, torch.rand(50).double()
    )
    torch.testing.assert_close(logprobs, of_logits(logits, tokens, 0.7, False)[0])


LOGITS = st.lists(
    st.one_of(st.just(-np.inf), st.floats(-90, 90, width=32)), min_size=1, max_size=40
)


@settings(deadline=None)
@given(LOGITS.filter(lambda row: max(row) > -np.inf), st.floats(SMALLEST, 1))
def test_a_token_of_probability_zero_is_never_drawn(row, uniform):
    uniforms = torch.tensor([SMALLEST, uniform, 1.0], dtype=torch.float64)
    logits = torch.tensor([row] * 3, dtype=torch.float32)
    tokens, logprobs = sample(logits, uniforms)
    expected = logits.log_softmax(dim=1).gather(1, tokens[:, None]).squeeze(1)
    torch.testing.assert_close(logprobs, expected, rtol=1e-5, atol=1e-5)
    assert (logprobs > -np.inf).all()
    # Not one that only rounds to 0 either.
    assert (logprobs.exp() > 0).all()


def test_extreme_random_numbers_over_a_large_vocabulary():
    """Rounding makes the sum of 150,000 probabilities differ from 1; the ends must hold."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(2, 150_000)
    logits[:, :1000] = logits[:, 149_000:] = -torch.inf
    ends = torch.tensor([SMALLEST, 1.0], dtype=torch.float64)
    assert sample(logits, ends)[0].tolist() == [1000, 148_999]


def test_the_smallest_random_number_draws_no_absurd_token():
    """None is 0, which would draw token 0 at log π = −80. In 24 bits this seed soon gives one."""
    sampling = TokenSampler(None, 9, 300_000, 1.0, torch.tensor([1]))
    assert 0 < sampling.uniforms([Draw("p", 0, 74)]).min() < 1e-3
    logits = torch.tensor([[-60.0, *[0.0] * 9, 20.0]])
    tokens, logprobs = sample(logits, torch.tensor([SMALLEST], dtype=torch.float64))
    assert tokens.item() == 1 and logprobs.item() == pytest.approx(-20, rel=1e-4)


def test_each_of_150_000_tokens_is_drawn_in_proportion():
    """One in 16 has 1e-8 of the probability: the sum in float32 steps over most of these."""
    rare = torch.arange(150_000) % 16 == 0
    logits = torch.where(rare, -18.4, 0.0).repeat(2, 1).log_softmax(dim=1)
    reached = logits[0].log_softmax(dim=0).exp().double().cumsum(0)
    wanted = torch.tensor([100_000, 140_016])  # rare ones, far along
    middle = (reached[wanted - 1] + reached[wanted]) / 2 / reached[-1]
    assert sample(logits, middle)[0].tolist() == wanted.tolist()
