"""Runs on a user's problems, grader and model."""

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rollwise.cli import main
from rollwise.config import make_config
from rollwise.models.loading import load_model
from rollwise.records import RunFolder
from rollwise.tasks import make_running_sums


def write_problems(path, count=40):
    problems = make_running_sums(count, 2, 4, seed=11)
    rows = [{"problem": p.messages[0]["content"], "answer": p.answer} for p in problems]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


TOML = """
steps = 2
[data]
train = "{problems}"
[grading]
{grading}
[prompts]
batch_size = 4
[engine]
max_new_tokens = 16
[evaluation]
problems = 10
samples = 2
"""


def write_toml(folder, grading):
    settings = folder / "settings.toml"
    settings.write_text(TOML.format(problems=folder / "problems.jsonl", grading=grading))
    return str(settings)


def test_a_users_settings_and_problems(tmp_path, metrics_of):
    """Of 40 problems a tenth is held out; an option goes before the file."""
    rows = write_problems(tmp_path / "problems.jsonl")
    settings = write_toml(tmp_path, 'type = "exact"')
    folder = tmp_path / "run"
    arguments = ["train", settings, "--output", str(folder), "--records.prompts_per_step", "9"]
    assert main([*arguments, "--steps", "3"]) == 0
    assert [line["step"] for line in metrics_of(folder)] == [0, 1, 2, 3]
    answers = {row["problem"]: row["answer"] for row in rows}
    samples = RunFolder(folder).read_samples()
    assert len(samples) == 3 * 4
    for row in samples:
        assert row["answer"] == answers[row["question"]]
        assert row["reward"] == float(row["response"].rpartition("=")[2].strip() == row["answer"])
    config = RunFolder(folder).read_config()
    assert config["grading"]["type"] == "exact"
    assert config["steps"] == 3


GRADER = """
def grade(response, answer):
    if len(response) % 2:
        raise ValueError(f"odd: {response}")
    return float(response.rpartition("=")[2] == answer)
"""


def test_a_grader_that_raises_costs_a_reward_and_stops_nothing(tmp_path, metrics_of, monkeypatch):
    write_problems(tmp_path / "problems.jsonl")
    (tmp_path / "grader_of_a_test.py").write_text(GRADER)
    monkeypatch.chdir(tmp_path)
    grading = 'type = "function"\nfunction = "grader_of_a_test:grade"\nworkers = 1'
    settings = write_toml(tmp_path, grading)
    arguments = ["train", settings, "--output", "run", "--records.prompts_per_step", "4"]
    assert main(arguments) == 0
    lines, rows = metrics_of(tmp_path / "run"), RunFolder(tmp_path / "run").read_samples()
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines[1:]:
        odd = [len(r["response"]) % 2 for r in rows if r["step"] == line["step"]]
        assert len(odd) == line["draws"]
        assert sum(odd) > 0
        if "heldout" in line:  # the evaluation's failures are counted with the step's
            assert line["grader_failures"] > sum(odd)
        else:
            assert line["grader_failures"] == sum(odd)
    assert lines[0]["grader_failures"] > 0
    assert all(row["reward"] == 0 for row in rows if len(row["response"]) % 2)


def save_tiny_qwen(folder, texts):
    """A random Qwen2 with a byte-level tokenizer of about 1,000 tokens, learnt from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|pad|>"
    ).save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def test_a_model_keeps_the_tokenizer_that_was_saved_with_it(tmp_path):
    """transformers 5 would give a Qwen2 its usual one: other splits, other special tokens."""
    texts = ["What is 12 + 345?", "Let $x = \\frac{1}{2}$.  Find x!", "Ünïcödé\n\tcode"]
    save_tiny_qwen(tmp_path, texts)
    _, tokenizer = load_model(make_config({"model": {"path": str(tmp_path)}}).model)
    own = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*texts, "1234567890 times don't"]:
        ids = tokenizer.encode(text)
        assert ids == own.encode(text).ids
        assert tokenizer.decode(ids) == text
    _, built_in = load_model(make_config().model)
    assert built_in.decode(built_in.encode("7 12 3 6=6")) == "7 12 3 6=6"
    assert max(built_in.all_special_ids) < len(built_in) == 17
