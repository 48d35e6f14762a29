"""Loading a model: what is taken, what is refused, and what each error says."""

import json
import shutil
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rollwise.config import BUILT_IN, ModelSettings
from rollwise.errors import DataError, ModelError
from rollwise.models import loading
from rollwise.models.loading import (
    MergedWeights,
    load_model,
    merged_weights,
    model_path,
    pick_device,
)
from rollwise.models.saved import find_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a model of one layer, made here, and the built-in tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=18,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    assert config.hidden_size // config.num_attention_heads == 32
    Qwen2ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(model_path(BUILT_IN)) / name, folder)
    return folder


@pytest.fixture
def copy(tiny, tmp_path):
    return shutil.copytree(tiny, tmp_path / "copy")


def load(path, **settings):
    return load_model(ModelSettings(path=str(path), device="cpu", **settings))


def refusal(path, **settings):
    with pytest.raises(ModelError) as caught:
        load(path, **settings)
    return str(caught.value)


def spells(tokenizer):
    return tokenizer.decode(tokenizer.encode("7+5-9+3?")) == "7+5-9+3?"


def trainable(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_the_built_in_model_is_in_the_package():
    folder = Path(model_path(BUILT_IN))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        p.name for p in folder.iterdir()
    }
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3e6
    model, tokenizer = load(BUILT_IN)
    assert spells(tokenizer)
    assert model.config.hidden_size // model.config.num_attention_heads == 32


def test_a_folder_is_taken_as_it_is_and_everything_in_it_trained(tiny):
    model, tokenizer = load(tiny)
    assert spells(tokenizer)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert trainable(model) == {name for name, _ in model.named_parameters()}


def test_weights_of_half_precision_are_trained_in_single(tiny, copy):
    Qwen2ForCausalLM.from_pretrained(tiny).to(torch.bfloat16).save_pretrained(copy)
    model, _ = load(copy)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_the_weights_of_a_checkpoint_are_taken_instead(tiny, tmp_path):
    trained = Qwen2ForCausalLM.from_pretrained(tiny)
    with torch.no_grad():
        trained.model.norm.weight.fill_(2.0)
    trained.save_pretrained(tmp_path / "model")
    model, tokenizer = load_model(ModelSettings(path=str(tiny), device="cpu"), tmp_path / "model")
    assert model.model.norm.weight.unique().tolist() == [2.0]
    assert spells(tokenizer)


def test_a_home_folder_may_be_written_short(copy, monkeypatch):
    monkeypatch.setenv("HOME", str(copy.parent))
    assert spells(load("~/copy")[1])


# Adapters


def test_lora_trains_adapters_and_nothing_else(tiny):
    pytest.importorskip("peft")
    plain, _ = load(tiny)
    model, _ = load(tiny, lora_rank=2)
    assert all("lora_" in name for name in trainable(model))
    layers = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert all(any(layer in name for name in trainable(model)) for layer in layers)
    tokens = torch.arange(6)[None]
    torch.testing.assert_close(model(tokens).logits, plain(tokens).logits)  # adapters begin at 0


def test_merged_weights_are_those_of_the_whole_model(tiny):
    """By peft's own merging, which changes the model; this does not."""
    pytest.importorskip("peft")
    model, _ = load(tiny, lora_rank=2, lora_modules="q_proj,down_proj")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    when_asked_for = merged_weights(model)
    assert isinstance(when_asked_for, MergedWeights)
    found = dict(when_asked_for)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    wanted = model.merge_and_unload().state_dict()
    torch.testing.assert_close(found, dict(wanted))
    plain, _ = load(tiny)
    changed = {name for name, tensor in plain.state_dict().items() if (found[name] != tensor).any()}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "down_proj"}
    assert all(torch.equal(merged_weights(plain)[k], v) for k, v in plain.state_dict().items())


def test_weights_under_adapters_can_be_in_bfloat16(tiny):
    """What is trained stays in float32, and what an engine gets is as the weights are."""
    pytest.importorskip("peft")
    model, _ = load(tiny, lora_rank=2, frozen_dtype="bfloat16")
    dtypes = {(p.requires_grad, p.dtype) for p in model.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.bfloat16)}
    model(torch.arange(6)[None]).logits.float().logsumexp(-1).sum().backward()
    gradients = [p.grad for name, p in model.named_parameters() if "lora_B" in name]
    assert all(g.dtype == torch.float32 and g.abs().max() > 0 for g in gradients)
    assert {w.dtype for w in merged_weights(model).values()} == {torch.bfloat16}
    plain, _ = load(tiny, frozen_dtype="bfloat16")  # it is of no account without adapters
    assert {p.dtype for p in plain.parameters()} == {torch.float32}


def test_lora_adapts_the_layers_that_are_named(tiny):
    pytest.importorskip("peft")
    model, _ = load(tiny, lora_rank=2, lora_modules="q_proj, v_proj")
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trainable(model)} == {
        "q_proj",
        "v_proj",
    }
    assert model.peft_config["default"].lora_alpha == 32


def test_a_layer_that_the_model_does_not_have_is_named(tiny):
    pytest.importorskip("peft")
    message = refusal(tiny, lora_rank=2, lora_modules="qkv_proj")
    assert "model.lora_modules: " in message
    assert "qkv_proj" in message


# What is refused


def test_a_folder_that_is_not_there_is_named(tmp_path):
    for path in (tmp_path / "missing", "./missing", "~/missing"):
        message = refusal(path)
        assert "model.path: there is no folder" in message
        assert "missing" in message


def test_a_folder_without_a_tokenizer_is_refused(copy):
    """transformers would make one up, of special tokens alone."""
    (copy / "tokenizer.json").unlink()
    (copy / "tokenizer_config.json").unlink()
    message = refusal(copy)
    assert f"model.path: {copy} has no tokenizer" in message
    assert "tokenizer.save_pretrained" in message


@pytest.mark.parametrize("missing", [["model.safetensors"], ["config.json"], None])
def test_a_folder_that_lacks_something_is_named_with_what_it_needs(copy, missing):
    for name in missing or [path.name for path in copy.iterdir()]:
        (copy / name).unlink()
    message = refusal(copy)
    assert f"in the folder {copy}; a folder needs config.json, safetensors weights" in message


def test_weights_that_would_have_to_be_unpickled_are_refused(tiny, copy):
    weights = Qwen2ForCausalLM.from_pretrained(tiny).state_dict()
    torch.save(weights, copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    assert "safetensors" in refusal(copy)


def test_weights_that_were_cut_off_are_refused(copy):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert f"no model could be loaded in the folder {copy}" in refusal(copy)


def test_weights_that_lack_a_tensor_are_refused(copy):
    path = copy / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    name = "model.layers.0.mlp.up_proj.weight"
    del weights[name]
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})
    assert f"the weights in {copy} lack 1 tensors, such as {name}" in refusal(copy)


@pytest.mark.parametrize("name", ["gpu", "cuda:99", ""])
def test_a_device_that_is_not_here_is_named(name):
    with pytest.raises(ModelError) as caught:
        pick_device(name)
    assert f"model.device: there is no device {name!r} here" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_auto_is_a_gpu_where_there_is_one():
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ("config.json", "hidden_size", "wide"),
        ("config.json", "num_attention_heads", 0),
        ("config.json", "max_position_embeddings", -1),
        ("config.json", "vocab_size", True),
        ("generation_config.json", "eos_token_id", "end"),
        ("generation_config.json", "eos_token_id", [1, -1]),
        ("generation_config.json", "eos_token_id", 18),
    ],
)
def test_a_size_or_an_end_token_that_is_none_is_named_with_its_file(copy, file, name, value):
    path = copy / file
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {name: value}))
    said = refusal(copy)
    assert f"`{name}` in {path} must be" in said and f"got {value!r}" in said


def test_what_the_library_raises_of_a_config_is_one_error(copy):
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 7}))
    assert f"could be loaded in the folder {copy}" in refusal(copy)


def test_weights_that_are_not_finite_are_refused(copy):
    weights = safetensors.torch.load_file(copy / "model.safetensors")
    weights["model.norm.weight"][3] = float("nan")
    safetensors.torch.save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert refusal(copy).endswith(f"in {copy} hold NaN or infinity: model.norm.weight")


def test_a_model_without_all_tokens_of_its_tokenizer_is_refused(copy):
    model, _ = load(copy)
    model.resize_token_embeddings(9)
    model.save_pretrained(copy)
    assert f"{copy} has 9 tokens, fewer than the 17 of its tokenizer" in refusal(copy)


@pytest.mark.parametrize("name", ["x" * 5000, "y" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(DataError, match=r"a name of|a NUL"):
        find_model(name)
    with pytest.raises(DataError, match=r"a name of|a NUL"):
        load_model(ModelSettings(path=name))


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    """Its own library would ask again for half a minute."""
    asked = []

    class Nowhere:
        def head(self, address, timeout):
            asked.append(address)
            raise ConnectionError

    loading._reaches.cache_clear()
    monkeypatch.setattr(loading.huggingface_hub.utils, "get_session", Nowhere)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(ModelError, match=r"hub cannot be reached from here.*: give a local"):
            loading.load_tokenizer("owner/none")
    loading._reaches.cache_clear()
    assert len(asked) == 1 and time.monotonic() - began < 10
