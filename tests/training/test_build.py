"""What a command draws with: which model, which engine, and what is closed."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import Gemma3Config, GenerationConfig, XLNetConfig

from rollwise.config import EvaluateConfig, make_settings
from rollwise.engines import Engine, EpisodeEngine
from rollwise.engines.settings import context_of
from rollwise.errors import ConfigError, ModelError
from rollwise.models.loading import load_tokenizer, model_path
from rollwise.models.saved import find_model
from rollwise.tasks import Problem
from rollwise.training.build import build


class FakeVLLM(Engine):
    """Remembers how it was made, and whether it was closed."""

    made = complete = load_weights = None

    def __init__(self, path, tokenizer, end_tokens, context, *arguments):
        self.path, self.end_tokens, self.context = path, end_tokens, context
        self.arguments, self.closed = arguments, False
        FakeVLLM.made = self

    def close(self):
        self.closed = True


def built_of(**settings):
    return build(make_settings(EvaluateConfig, settings))


def test_vllm_is_told_what_the_model_says_of_itself_and_no_weights_are_loaded(monkeypatch):
    monkeypatch.setattr("rollwise.engines.vllm.VLLMEngine", FakeVLLM)
    monkeypatch.setattr("rollwise.models.saved.load_model", None)
    with built_of(engine={"type": "vllm", "max_new_tokens": 16}) as built:
        engine = built.engine
        assert built.encode([Problem.ask("1+1?", "2")]).too_long == 0
        assert not engine.closed
    assert engine.closed
    folder = model_path("running-sums")
    context = json.loads(Path(folder, "config.json").read_text())["max_position_embeddings"]
    assert (engine.path, engine.end_tokens, engine.context) == (folder, {1}, context)
    assert engine.arguments[:3] == (16, 1.0, 512)
    assert engine.arguments[3].gpu_memory_utilization == 0.9


def test_a_model_without_a_generation_config_ends_where_its_tokenizer_says(tmp_path, monkeypatch):
    monkeypatch.setattr("rollwise.engines.vllm.VLLMEngine", FakeVLLM)
    shutil.copytree(model_path("running-sums"), tmp_path / "model")
    (tmp_path / "model/generation_config.json").unlink()
    settings = {"model": {"path": str(tmp_path / "model")}}
    with built_of(**settings, engine={"type": "vllm", "max_new_tokens": 16}) as built:
        assert built.engine.end_tokens == {1}


def test_a_turn_follows_the_end_token_of_the_generation_config(tmp_path, monkeypatch):
    """As in Gemma's and Phi-3's templates, whose newline after it is kept; here, a space."""
    monkeypatch.setattr("rollwise.engines.vllm.VLLMEngine", FakeVLLM)
    folder = Path(shutil.copytree(model_path("tool-sums"), tmp_path / "model"))
    template = "{% for message in messages %}{{ message['content'] }}? {% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(str(folder))
    (end,) = tokenizer.encode("?")
    GenerationConfig(eos_token_id=end).save_pretrained(folder)
    settings = {"model": {"path": str(folder)}, "episode": {"type": "calculator"}}
    with built_of(**settings, engine={"type": "vllm", "max_new_tokens": 16}) as built:
        assert tokenizer.decode(built.engine._encode("3")) == " 3? "


def test_the_context_is_what_the_models_text_part_takes():
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32}
    config = SimpleNamespace(max_position_embeddings=256, rope_parameters=rope)
    assert context_of(config) == 32
    assert context_of(Gemma3Config(text_config={"max_position_embeddings": 48})) == 48
    assert context_of(XLNetConfig()) is None


def test_the_context_of_an_episode_has_room_for_all_of_its_turns(monkeypatch):
    """32 tokens of a prompt, 64 of the turns before the last, and 16 of that."""
    monkeypatch.setattr("rollwise.engines.vllm.VLLMEngine", FakeVLLM)
    settings = {
        "model": {"path": "tool-sums"},
        "data": {"max_prompt_tokens": 32},
        "engine": {"type": "vllm", "max_new_tokens": 16},
        "episode": {"type": "calculator", "max_tokens": 64},
    }
    with built_of(**settings) as built:
        assert isinstance(built.engine, EpisodeEngine)
        assert FakeVLLM.made.context == built.engine._limits.context == 32 + 64 + 16


@pytest.mark.parametrize(
    ("content", "engine", "error", "said"),
    [
        ("{}", "vllm", ConfigError, "must be `transformers` for adapters, and .* holds adapters"),
        ("{}", "transformers", ModelError, "does not say which model the adapters are for"),
        ("[", "transformers", ModelError, "does not say which model the adapters are for"),
    ],
)
def test_adapters_that_cannot_be_used_are_refused(tmp_path, content, engine, error, said):
    (tmp_path / "adapter_config.json").write_text(content)
    settings = {"model": {"path": str(tmp_path)}, "engine": {"type": engine}}
    with built_of(**settings) as built, pytest.raises(error, match=said):
        _ = built.engine


@pytest.mark.parametrize("content", ["config.json", "adapter_config.json"])
def test_a_run_is_its_newest_checkpoint(tmp_path, content):
    for step in (2, 10):
        model = tmp_path / f"checkpoints/step-{step:06d}/model"
        model.mkdir(parents=True)
        (model / content).write_text("{}")
    newest = tmp_path / "checkpoints/step-000010"
    assert find_model(str(tmp_path)) == str(newest / "model")
    assert find_model(str(newest)) == str(newest / "model")
    assert find_model(str(newest / "model")) == str(newest / "model")
    assert find_model("owner/name") == "owner/name"
