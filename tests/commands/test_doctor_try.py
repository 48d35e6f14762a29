"""`rollwise doctor --try`: the largest step of a run."""

import json
import shutil

import pytest

from rollwise.cli import main
from rollwise.commands import doctor_try
from rollwise.errors import ConfigError
from rollwise.models.loading import load_tokenizer, model_path

TRIED = """
method = 'reinforce_ada'
schedule = {size = 2, rounds = 2}
prompts = {batch_size = 4}
data = {problems = 32, max_terms = 4}
engine = {max_new_tokens = 12}
evaluation = {problems = 4, samples = 2}
"""
"""A run of the built-in model."""


def test_a_try_takes_the_largest_step_and_leaves_nothing(doctor, tmp_path, monkeypatch):
    """Four prompts in two rounds of two draws; each response has all of its 12 tokens."""
    monkeypatch.chdir(tmp_path)
    code, found = doctor(TRIED, "--try")
    assert code == 0, found
    one = found["one step"]
    assert "4 prompts, 16 responses of 12 tokens: " in one["detail"]
    assert "; 100 steps take at most 0:0" in one["detail"]
    assert 0.05 < float(one["detail"].split()[0]) < 50
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


@pytest.mark.parametrize(
    "settings",
    [
        "method = 'grpo'\nexit = {samples = 2}",
        "method = 'gvm'",
        "method = 'reinforce_ada'\nschedule = {type = 'streamed', max_samples = 5}",
        "method = 'single'",
    ],
)
def test_runs_of_any_kind_can_be_tried(doctor, settings):
    base = TRIED.replace("method = 'reinforce_ada'\nschedule = {size = 2, rounds = 2}\n", "")
    code, found = doctor(f"{settings}\n{base}", "--try")
    assert code == 0 and " responses of 12 tokens" in found["one step"]["detail"], found


def test_memory_that_does_not_suffice_is_said_with_what_to_change(doctor, monkeypatch):
    def fail(run):
        raise MemoryError("no 12 GB")

    monkeypatch.setattr(doctor_try, "largest_step", fail)
    code, found = doctor(TRIED, "--try")
    one = found["one step"]
    assert (code, one["state"]) == (1, "broken")
    assert "there is not enough memory" in one["detail"] and "12 GB" in one["detail"]
    assert "model.gradient_checkpointing" in one["fix"]
    found = doctor(TRIED.replace("max_terms = 4", "train = 'no.jsonl'"), "--try")[1]
    assert "one step" not in found  # what it needs is not there


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("steps = 1\n[methods.a]", "the file is for `compare`"),
        ("[verl.trainer]\nnnodes = 2", "the file is for verl"),
        ("backend = {type = 'tinker'}", "this model runs on Tinker"),
    ],
)
def test_what_cannot_be_tried_is_said(doctor, capsys, settings, said):
    code, found = doctor(settings, "--try")
    assert code == 1 and said in found["settings.toml"]["detail"]
    assert main(["doctor", "--try"]) == ConfigError.exit_code
    assert "--try goes with a settings file" in capsys.readouterr().err


def without_ends(folder):
    """Copy a built-in model, without any token that ends a response."""
    shutil.copytree(model_path("tool-sums"), folder)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        held = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(held | {"eos_token_id": None, "eos_token": None}))
    return str(folder)


SERVER = ["--engine.type=server", "--engine.base_url=http://localhost:1/v1", "--engine.model=m"]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data.train=sums.jsonl", "--prompts.batch_size=4"],
        ["evaluate", "--benchmarks=sums.jsonl", "--episode.type=calculator", *SERVER],
    ],
)
def test_a_model_without_an_end_token_is_refused(words, tmp_path, capsys, monkeypatch):
    """Also where a server draws, for episodes, whose turns must be told apart."""
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"{n}+1?", "answer": str(n + 1)} for n in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = without_ends(tmp_path / "model")
    given = [f"--model.path={path}", "--engine.max_new_tokens=8", "--grading.type=exact"]
    assert main([*words, *given]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "model.path: nothing ends a response of this model: set `eos_token_id`" in shown


def test_what_ends_a_response_is_said(doctor, tmp_path):
    """Of a base model too, whose template closes turns with another token than ends a text."""
    folder = tmp_path / "model"
    settings = f"{TRIED}\n[model]\npath = '{without_ends(folder)}'"
    code, found = doctor(settings)
    assert code == 1 and "nothing ends a response" in found[str(folder)]["detail"]
    tokenizer = load_tokenizer(str(folder))
    names = ["<|endoftext|>", "<|im_end|>"]
    tokenizer.add_tokens(names)
    tokenizer.eos_token = names[0]
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 99}))
    code, found = doctor(settings)
    said = "a response ends with <|endoftext|> ({}) or <|im_end|> ({})"
    ids = tokenizer.convert_tokens_to_ids(names)
    assert (code, found[str(folder)]["detail"]) == (0, said.format(*ids))


def test_memory_is_predicted_for_a_gpu_or_this_machine(doctor):
    """By what takes it; a GPU that is too small is an error, with what to change."""
    code, found = doctor(TRIED)
    assert code == 0 and " GB of memory; this run needs at most " in found["prediction"]["detail"]
    code, found = doctor(TRIED, "--gpu", "24")
    said = "24.0 GB of a GPU, with micro-batches of 16,384 tokens; this run needs at most "
    assert code == 0 and said in found["prediction"]["detail"]
    code, found = doctor(TRIED, "--gpu", "0.4")
    assert (code, found["prediction"]["state"]) == (1, "broken")
    assert "model.gradient_checkpointing" in found["prediction"]["fix"]
    for words in (["--gpu", "24"], ["settings.toml", "--gpu", "0"], ["settings.toml", "--gpu=nan"]):
        assert main(["doctor", *words]) == ConfigError.exit_code
