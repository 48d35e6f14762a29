"""Runs on a user's problems, columns, grader and model, and on episodes."""

import json

from row_files import write_rows
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config

from rollwise.cli import main
from rollwise.files import list_checkpoints
from rollwise.models.loading import load_tokenizer
from rollwise.records import RunFolder
from rollwise.tasks import make_running_sums


def write_problems(path, count=40):
    problems = make_running_sums(count, 2, 4, seed=11)
    rows = [{"problem": p.messages[0]["content"], "answer": p.answer} for p in problems]
    write_rows(path, rows)
    return rows


TOML = """
method = "reinforce_ada"
steps = 2
data = {train = "problems.jsonl"}
grading = {type = "function", function = "grader_of_a_test:grade", workers = 1}
prompts = {batch_size = 4}
engine = {max_new_tokens = 16}
evaluation = {problems = 10, samples = 2}
"""

GRADER = """
def grade(response, answer):
    if len(response) % 2:
        raise ValueError(f"odd: {response}")
    return float(response.rpartition("=")[2] == answer)
"""


def test_a_users_settings_problems_and_grader(tmp_path, metrics_of, monkeypatch):
    """An option goes before the file; a grader that raises costs a reward and stops nothing."""
    problems = write_problems(tmp_path / "problems.jsonl")
    (tmp_path / "grader_of_a_test.py").write_text(GRADER)
    (tmp_path / "settings.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    options = "--output run --records.prompts_per_step 4 --steps 3"
    assert main(["train", "settings.toml", *options.split()]) == 0
    folder = RunFolder(tmp_path / "run")
    lines, rows = metrics_of(folder.path), folder.samples.read().to_pylist()
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert folder.read_config()["steps"] == 3
    answers = {row["problem"]: row["answer"] for row in problems}
    for line in lines[1:]:
        odd = [len(r["response"]) % 2 for r in rows if r["step"] == line["step"]]
        assert len(odd) == line["draws"]
        assert sum(odd) > 0
        if "heldout" in line:  # the evaluation's failures are counted with the step's
            assert line["grader_failures"] > sum(odd)
        else:
            assert line["grader_failures"] == sum(odd)
    assert lines[0]["grader_failures"] > 0
    summary = json.loads((folder.path / "summary.json").read_text())
    assert summary["grader_failures"] == sum(line["grader_failures"] for line in lines)
    for row in rows:
        said, answer = row["response"], answers[row["question"]]
        assert row["answer"] == answer
        assert row["reward"] == float(not len(said) % 2 and said.rpartition("=")[2] == answer)


def test_a_model_keeps_the_tokenizer_that_was_saved_with_it(tmp_path):
    """transformers 5 would give a Qwen2 its usual one: other splits, other special tokens."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=["<|end|>"], initial_alphabet=alphabet)
    own.train_from_iterator(["What is 12 + 345?"], trainer)
    PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>").save_pretrained(tmp_path)
    Qwen2Config().save_pretrained(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    for text in ("What is 12 + 345?", "Ünïcödé\n\tcode", "1234567890 times don't"):
        ids = tokenizer.encode(text)
        assert ids == own.encode(text).ids
        assert tokenizer.decode(ids) == text


def names_of(folder):
    """The features that the newest checkpoint has learned weights of."""
    state = list_checkpoints(RunFolder(folder).checkpoints)[-1] / "state.json"
    return json.loads(state.read_text())["sampler"]["belief.features.columns"].split(",")


def test_a_run_learns_from_the_columns_that_are_there_or_named_and_resumes(tmp_path):
    rows = [
        row | {"data_source": f"set {i % 2}", "embedding": [i / 24, 1.0, i**2 / 576]}
        for i, row in enumerate(write_problems(tmp_path / "data.jsonl", count=24))
    ]
    data = tmp_path / "data.jsonl"
    write_rows(data, rows)
    words = f"--data.train {data} --grading.type exact --prompts.batch_size 8 --steps 2"
    words += " --evaluation.problems 2 --evaluation.every 0 --engine.max_new_tokens 8"
    train = ["train", *words.split(), "--output"]
    assert main([*train, str(tmp_path / "default")]) == 0
    assert names_of(tmp_path / "default") == ["source", "prompt_tokens"]
    named = [*train, str(tmp_path / "named"), "--belief.features", '["embedding", "source"]']
    assert main(named) == 0
    assert names_of(tmp_path / "named") == ["embedding", "source"]
    assert main([*named, "--steps", "3"]) == 0
    assert len(RunFolder(tmp_path / "named").read_metrics()) == 4
    write_rows(data, [row | {"level": "Level 5"} for row in rows])
    levels = ["--prompts.type", "curriculum", "--belief.type", "logit_kalman"]
    levels += ["--belief.features", '["level"]']
    assert main([*train, str(tmp_path / "levels"), *levels]) == 0


TOOL = {
    "data__train": "tool-sums",
    "data__max_terms": "6",
    "engine__max_new_tokens": "24",
    "method": "single",
    "schedule__rounds": "1",
    "prompts__type": "worth",
}


def test_a_run_of_episodes_that_was_stopped_resumes_to_the_same_end(train, tmp_path, metrics_of):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(whole, **TOOL) == 0
    assert train(stopped, **TOOL, steps="2") == 0
    assert train(stopped, "--resume", **TOOL) == 0
    steps, resumed = metrics_of(whole)[1:], metrics_of(stopped)[1:]
    assert resumed[-1] == steps[-1]
    assert "heldout" in resumed[1].keys() - steps[1].keys(), "it ended there at first"
    assert {k: v for k, v in resumed[1].items() if k in steps[1]} == steps[1]
    assert max(step["turns"] for step in steps) > 1
    assert sum(step["ends"]["done"] for step in steps) > 0
    rows = RunFolder(whole).samples.read().to_pylist()
    asked = [row for row in rows if row["turns"] > 1]
    for row in asked:
        said = row["response"].split("\n")[::2]  # the calculator says every second line
        assert len(said) == row["turns"]
        assert row["tokens"] == sum(map(len, said)) + row["turns"], "a newline ends each turn"
    assert asked
