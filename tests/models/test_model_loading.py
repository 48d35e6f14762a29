"""Loading a model: what is taken, what is refused, and what each error says."""

import json
import os
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tiny_models import make_model
from transformers import Qwen2ForCausalLM

from rollwise.config import BUILT_IN, ModelSettings
from rollwise.errors import ModelError
from rollwise.models import loading
from rollwise.models.loading import load_model, merged_weights, model_path, pick_device


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a model of one layer, made here, and the built-in tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model(num_hidden_layers=1, tie_word_embeddings=True).save_pretrained(folder)
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
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3e6
    model, tokenizer = load(BUILT_IN)
    assert spells(tokenizer)
    assert model.config.hidden_size // model.config.num_attention_heads == 32


def test_a_folder_is_taken_as_it_is_and_everything_in_it_trained(copy, monkeypatch):
    """In single precision, whatever its own; and from a home folder that is written short."""
    Qwen2ForCausalLM.from_pretrained(copy).to(torch.bfloat16).save_pretrained(copy)
    monkeypatch.setenv("HOME", str(copy.parent))
    model, tokenizer = load("~/copy")
    assert spells(tokenizer)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert trainable(model) == {name for name, _ in model.named_parameters()}


def test_lora_trains_adapters_of_the_layers_that_are_named_and_nothing_else(tiny):
    pytest.importorskip("peft")
    plain, _ = load(tiny)
    model, _ = load(tiny, lora_rank=2)
    layers = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trainable(model)} == layers
    tokens = torch.arange(6)[None]
    torch.testing.assert_close(model(tokens).logits, plain(tokens).logits)  # adapters begin at 0
    model, _ = load(tiny, lora_rank=2, lora_modules="q_proj, v_proj")
    named = {name.split(".lora_")[0].rpartition(".")[2] for name in trainable(model)}
    assert named == {"q_proj", "v_proj"}
    assert model.peft_config["default"].lora_alpha == 32


def test_merged_weights_are_those_of_the_whole_model(tiny):
    """By peft's own merging, which changes the model; this does not."""
    pytest.importorskip("peft")
    model, _ = load(tiny, lora_rank=2, lora_modules="q_proj,down_proj")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = merged_weights(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    wanted = model.merge_and_unload().state_dict()
    torch.testing.assert_close(found, dict(wanted))
    plain, _ = load(tiny)
    changed = {name for name, tensor in plain.state_dict().items() if (found[name] != tensor).any()}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "down_proj"}
    own = plain.state_dict()
    assert all(
        merged.data_ptr() == own[name].data_ptr() for name, merged in merged_weights(plain).items()
    )


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


def test_layers_that_a_model_lacks_and_adapters_that_cannot_be_read_are_named(tiny, tmp_path):
    pytest.importorskip("peft")
    message = refusal(tiny, lora_rank=2, lora_modules="qkv_proj")
    assert "model.lora_modules: " in message and "qkv_proj" in message
    (tmp_path / "adapter_config.json").write_text('{"peft_type": 5}')
    with pytest.raises(ModelError, match=f"the adapters in {tmp_path} cannot be read"):
        load_model(ModelSettings(path=str(tiny), device="cpu", lora_rank=2), tmp_path)


@pytest.mark.parametrize("path", ["/missing", "./missing", "~/missing"])
def test_a_folder_that_is_not_there_is_named(path):
    message = refusal(path)
    assert "model.path: there is no folder" in message
    assert "missing" in message


CONFIG, WEIGHTS = "config.json", "model.safetensors"
UP = "model.layers.0.mlp.up_proj.weight"
LACKS = "in the folder {}; a folder needs config.json, safetensors weights"


def removed(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def with_weights(change):
    def apply(folder):
        weights = safetensors.torch.load_file(folder / WEIGHTS)
        change(weights)
        safetensors.torch.save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

    return apply


def with_json(file, **values):
    def apply(folder):
        held = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        (folder / file).write_text(json.dumps(held | values))

    return apply


def with_few_tokens(folder):
    model, _ = load(folder)
    model.resize_token_embeddings(9)
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (removed(WEIGHTS), LACKS),
        (removed(CONFIG), LACKS),
        (lambda folder: os.truncate(folder / WEIGHTS, 1000), LACKS),
        (lambda folder: [path.unlink() for path in folder.iterdir()], LACKS),
        (removed("tokenizer.json", "tokenizer_config.json"), "{} has no tokenizer; save one there"),
        (with_weights(lambda w: w.pop(UP)), f"weights in {{}} lack 1 tensors, such as {UP}"),
        (
            with_weights(lambda w: w[UP][3:4].fill_(-torch.inf)),
            f"weights in {{}} hold NaN or infinity: {UP}",
        ),
        (with_few_tokens, "`vocab_size` in {}/config.json is 9, fewer than the 17 tokens of the t"),
        (with_json(CONFIG, hidden_size=32), LACKS),
    ],
)
def test_what_is_missing_or_damaged_in_a_folder_is_named(copy, damage, said):
    """Weights that would have to be unpickled are none, and a tokenizer is not made up."""
    torch.save(Qwen2ForCausalLM.from_pretrained(copy).state_dict(), copy / "pytorch_model.bin")
    damage(copy)
    message = refusal(copy)
    assert message.startswith("model.path: ") and said.format(copy) in message
    assert len(message) < 600


@pytest.mark.parametrize("name", ["gpu", "cuda:99", ""])
def test_a_device_that_is_not_here_is_named(name):
    """`auto` is a GPU where there is one."""
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ModelError) as caught:
        pick_device(name)
    assert f"model.device: there is no device {name!r} here" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    """Its own library would ask again for half a minute."""
    asked = []

    class Nowhere:
        def head(self, address, timeout):
            asked.append(address)
            raise ConnectionError

    loading._reaches_hub.cache_clear()
    monkeypatch.setattr(loading.huggingface_hub, "get_session", Nowhere)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"hub cannot be reached from here.*: give a local"):
            loading.load_tokenizer("owner/none")
    loading._reaches_hub.cache_clear()
    assert len(asked) == 1
