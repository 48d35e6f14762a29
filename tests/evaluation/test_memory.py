"""What a run takes of a GPU's memory: sizes of models against `transformers`, sums by hand."""

import json
import re

import numpy as np
import pytest
import torch
import transformers
from configurations import QWEN

from rollwise.cli import main
from rollwise.commands.doctor_memory import memory_of
from rollwise.config import make_config
from rollwise.config.reading import read_toml
from rollwise.errors import ConfigError
from rollwise.evaluation.memory import (
    ASLEEP,
    GATED,
    ModelShape,
    _activations,
    changes_that_fit,
    plan_memory,
    read_shape,
)
from rollwise.step import Example
from rollwise.training import packing
from rollwise.training.forward import Forward

CONFIGS = {
    "Qwen2.5-Math-1.5B": QWEN,
    "Qwen3-4B": QWEN
    | {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 36,
    },
    "Llama-3.2-3B-Instruct": QWEN
    | {
        "model_type": "llama",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
    },
}
"""Of the `config.json` of each model, what its size follows from."""


def settings(**sections):
    given = {"model": {"path": "-"}, "data": {"train": "-", "max_prompt_tokens": 24}}
    return make_config(
        {name: given.get(name, {}) | sections.get(name, {}) for name in given | sections}
    )


@pytest.mark.parametrize("kind", sorted(GATED))
@pytest.mark.parametrize("tied", [False, True])
def test_sizes_are_those_of_the_models_of_transformers(kind, tied):
    """The few weights that some have besides, such as norms of queries, are less than 1 %."""
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        pad_token_id=0,
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shape = ModelShape.of_config(config.to_dict(), kind)
    assert shape.parameters == pytest.approx(model.num_parameters(), rel=0.01)


def test_adapters_have_the_size_of_those_of_peft():
    peft = pytest.importorskip("peft")
    config = transformers.Qwen2Config(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    adapters = peft.LoraConfig(r=5, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(transformers.Qwen2ForCausalLM(config), adapters)
    wanted = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert ModelShape.of_config(config.to_dict(), "-").adapters(5) == wanted


def test_what_is_held_is_16_bytes_a_weight_and_what_the_engine_takes():
    """Weights 4, AdamW 8, gradients 4; on a GPU the engine's copy 2; its cache by hand."""
    shape = ModelShape.of_config(QWEN, "-")
    weights = shape.parameters
    assert weights == pytest.approx(1.544e9, rel=1e-3)
    config = settings(engine={"batch_size": 10, "max_new_tokens": 1000})
    plan = plan_memory(shape, config, 80e9)
    assert (
        plan.held["weights"] + plan.held["optimizer"] + plan.learning["gradients"] == 16 * weights
    )
    assert plan.held["engine: weights"] == 2 * weights
    # 10 rows of 1,024 tokens, 28 layers, keys and values of 2 heads of 128, 2 bytes
    assert plan.drawing["engine: cache"] == 10 * 1024 * 28 * 2 * 256 * 2
    on_vllm = settings(engine={"type": "vllm", "gpu_memory_utilization": 0.3})
    assert plan_memory(shape, on_vllm, 80e9).held["engine: weights, cache"] == 24e9
    adapters = settings(model={"lora_rank": 8, "frozen_dtype": "bfloat16"})
    plan = plan_memory(shape, adapters, 80e9)
    assert plan.held["weights"] == 2 * weights + 4 * shape.adapters(8)
    assert plan.held["optimizer"] == 8 * shape.adapters(8)
    small = plan_memory(shape, settings(learner={"optimizer": "adamw_8bit"}), 80e9)
    assert small.held["optimizer"] == (2 + 2 * 4 / 256) * weights
    assert "optimizer's step" not in small.update  # bitsandbytes updates in place
    paged = plan_memory(shape, settings(learner={"optimizer": "paged_adamw_32bit"}), 80e9)
    assert "optimizer" not in paged.held


def test_what_the_engine_lends_counts_only_while_it_draws():
    """On 24 GB vLLM has 14.4, of which it keeps 1.5: the learner's peak and vLLM's are apart."""
    shape = ModelShape.of_config(QWEN, "-")
    share = {"type": "vllm", "gpu_memory_utilization": 0.6}
    adapters = {"lora_rank": 32, "frozen_dtype": "bfloat16", "gradient_checkpointing": True}
    always = plan_memory(shape, settings(engine=share, model=adapters), 24e9)
    lent = settings(engine=share | {"sleep_level": 2}, model=adapters)
    plan = plan_memory(shape, lent, 24e9)
    assert plan.held["engine, asleep"] == ASLEEP
    assert plan.drawing == {"engine: weights, cache": 0.6 * 24e9 - ASLEEP}
    assert sum(plan.held.values()) == pytest.approx(sum(always.held.values()) - 14.4e9 + ASLEEP)
    rest = max(sum(plan.learning.values()), 14.4e9 - ASLEEP)
    assert plan.peak == pytest.approx(sum(plan.held.values()) + rest)
    changes, _ = changes_that_fit(shape, settings(engine=share), 24e9)
    assert "engine.sleep_level = 2" in changes


def test_logits_do_not_grow_beyond_a_chunk():
    shape = ModelShape.of_config(QWEN, "-")
    found = [
        plan_memory(shape, settings(learner={"micro_batch_tokens": tokens}), 80e9).learning
        for tokens in (8_192, 16_384)
    ]
    assert found[0]["logits"] == found[1]["logits"] == pytest.approx(12 * 2**26, rel=0.01)
    assert found[1]["activations"] == 2 * found[0]["activations"]


class Kernel(torch.autograd.Function):
    """Keeps what flash attention keeps; its result is of no account here."""

    @staticmethod
    def forward(context, query, key, value):
        found, sums = torch.zeros_like(query), torch.zeros(query.shape[:2])
        context.save_for_backward(query, key, value, found, sums)
        return found


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
def test_activations_are_what_layers_keep_on_a_gpu(kind, monkeypatch):
    """Counted in autocast on a CPU: tensors kept for the way back that have a row for each token.

    The last norm keeps its input and the normalised one besides, in float32.
    """
    monkeypatch.setattr(packing, "varlen_attn", lambda q, k, v, *_, **__: Kernel.apply(q, k, v))
    monkeypatch.setattr(packing, "_has_kernel", lambda device: True)
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    config = getattr(transformers, f"{kind}Config")(vocab_size=512, **sizes, **heads)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    tokens, run = 122, Forward(model, 1.0, packed=True)
    examples = [Example([2] * 40, [3] * (tokens - 40), np.zeros(tokens - 40), 1.0)]
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if tokens in tensor.shape and storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16),
    ):
        inputs = packing.pack(examples, torch.device("cpu")).inputs
        states = run.model.model(**inputs, use_cache=False).last_hidden_state
    assert states.requires_grad
    found = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    inside, _ = _activations(ModelShape.of_config(config.to_dict(), kind), on_gpu=True)
    assert found == pytest.approx(tokens * (4 * inside + 2 * 4 * 256), rel=0.02)


def test_changes_end_once_it_fits():
    shape = ModelShape.of_config(QWEN, "-")
    config = settings(engine={"type": "vllm", "max_new_tokens": 2000})
    assert changes_that_fit(shape, config, 400e9)[0] == []
    changes, plan = changes_that_fit(shape, config, 48e9)
    assert changes[0] == "model.gradient_checkpointing = true"
    assert "engine.sleep_level = 2" not in changes
    assert plan.peak <= 48e9
    changes, plan = changes_that_fit(shape, config, 24e9)
    assert changes[2:] == ['learner.optimizer = "adamw_8bit"', "engine.sleep_level = 2"]
    assert plan.peak <= 24e9
    changes, plan = changes_that_fit(shape, config, 16e9)
    assert "model.lora_rank = 32" in changes
    assert plan.peak <= 16e9
    assert changes_that_fit(shape, config, 4e9)[1].peak > 4e9


def test_every_recipe_fits_its_gpu_and_has_a_cache_for_its_responses(root, tmp_path):
    recipes = sorted((root / "examples/recipes").glob("*.toml"))
    assert len(recipes) == 9
    for path in recipes:
        config, gpu = make_config(read_toml(path)), int(re.search(r"(\d+)gb", path.stem)[1]) * 1e9
        shape = ModelShape.of_config(CONFIGS[config.model.path.split("/")[1]], path.name)
        plan = plan_memory(shape, config, gpu)
        assert plan.peak <= 0.96 * gpu, path
        own = tmp_path / "config.json"
        own.write_text(json.dumps(CONFIGS[config.model.path.split("/")[1]]), encoding="utf-8")
        [check] = memory_of(config, tmp_path, gpu / 1e9)
        assert check.state == "works", path
        longest = config.data.max_prompt_tokens + config.engine.max_new_tokens
        cache = plan.held["engine: weights, cache"] - 2 * shape.parameters - 1e9
        assert cache >= 3 * longest * 4 * shape.layers * shape.keys, path


def test_the_command_says_whether_it_fits_and_what_to_change(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(QWEN), encoding="utf-8")
    recipe = tmp_path / "run.toml"
    recipe.write_text('[engine]\ntype = "vllm"\n', encoding="utf-8")
    assert main(["plan", str(recipe), "--memory", str(tmp_path), "--gpu-gb", "24"]) == 1
    shown = capsys.readouterr().out
    assert "does not fit" in shown
    assert "change model.gradient_checkpointing = true" in shown
    assert main(["plan", str(recipe), "--memory", str(tmp_path), "--gpu-gb", "400"]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as a model's config.json"),
        ("[]", "is a table, this is none"),
        ('{"model_type": "mamba"}', "'mamba' is not known; known are granite, llama"),
        ('{"model_type": "llama"}', "'num_attention_heads' of a model's configuration is missing"),
    ],
)
def test_a_configuration_that_cannot_be_planned_is_refused(tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_shape(file)


@pytest.mark.parametrize(
    ("further", "said"),
    [
        (["--memory", ".", "--steps", "3"], "nothing else is used"),
        (["--memory", ".", "--output", "x"], "nothing else is used"),
        (["--gpu-gb", "24"], "--gpu-gb goes with --memory"),
    ],
)
def test_options_that_would_go_unused_are_refused(capsys, further, said):
    assert main(["plan", *further]) == ConfigError.exit_code
    assert said in capsys.readouterr().err


def test_the_documentation_says_what_is_planned(root):
    """Its table has a row for every recipe, in the recipe's own numbers."""
    text = (root / "docs/gpu.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w[\w.-]+) \| (24|48|80) \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) == 9
    for name, gb, rest in rows:
        path = root / f"examples/recipes/{name.lower()}-{gb}gb.toml"
        config = make_config(read_toml(path))
        shape = ModelShape.of_config(CONFIGS[config.model.path.split("/")[1]], path.name)
        plan = plan_memory(shape, config, int(gb) * 1e9)
        vllm = plan.held["engine: weights, cache"]
        learner = sum(plan.held.values()) - vllm
        passes = max(sum(plan.learning.values()), sum(plan.update.values()))
        rank = config.model.lora_rank
        found = [f"LoRA {rank}" if rank else "all", f"{config.engine.max_new_tokens:,}"]
        found += [f"{size / 1e9:.1f}" for size in (learner, vllm, passes, plan.peak)]
        assert rest.split(" | ") == found, path
    fitting = {"model": {"gradient_checkpointing": True}, "data": {"max_prompt_tokens": 1024}}
    fitting["engine"] = {"type": "vllm", "max_new_tokens": 2048, "sleep_level": 2}
    for optimizer, said in (
        ("adamw_8bit", r"\((\S+) planned"),
        ("paged_adamw_8bit", r"(\S+) with `paged_adamw_8bit`"),
    ):
        learner = {"optimizer": optimizer, "micro_batch_tokens": 3072}
        plan = plan_memory(
            ModelShape.of_config(QWEN, "qwen"), settings(**fitting, learner=learner), 24e9
        )
        assert re.search(said, text)[1] == f"{plan.peak / 1e9:.1f}"
