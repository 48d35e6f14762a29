"""What a command has read is compared with what it finds when it is repeated."""

import json

import pytest
from drawn import contents_of
from row_files import write_rows
from small_runs import SMALL
from tiny_models import make_model, make_tokenizer

from rollwise.records import fingerprints
from rollwise.tasks import make_running_sums

DRAWING = ["--samples", "2", "--portion", "8", "--grading.type", "exact"]
SOURCES = {
    "train": [*SMALL, "--steps", "2", "--data.train"],
    "evaluate": [*DRAWING, "--benchmarks"],
    "prepare": [*DRAWING, "--data.sources"],
}
"""Options of each command; the last takes a file."""

FURTHER = {"train": ["--steps", "3"], "evaluate": [], "prepare": ["--selection.range", "[0, 1)"]}
"""What makes a finished command go on, where anything does."""


def sums(count=40, **more):
    problems = make_running_sums(count, 2, 4, seed=11)
    return [{"problem": p.messages[0]["content"], "answer": p.answer, **more} for p in problems]


CORRECTED = sums(answer="7")


@pytest.fixture
def file(tmp_path):
    return write_rows(tmp_path / "sums.jsonl", sums())


@pytest.fixture
def model(tmp_path):
    """Writes a model of another seed into the same folder: `model(seed)`."""

    def make(seed):
        make_model(seed=seed).save_pretrained(tmp_path / "model")
        make_tokenizer().save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return make


@pytest.mark.parametrize("command", SOURCES)
def test_data_that_changed_since_is_refused_and_what_is_missing_is_said(
    tmp_path, file, say, command
):
    folder, options = tmp_path / "run", [*SOURCES[command], file]
    say(command, folder, *options)
    before = contents_of(folder)
    keyed = [row | {"key": f"{n}"} for n, row in enumerate(sums())]
    changes = {"answers": [CORRECTED], "texts": [sums(41), keyed], "columns": [sums(level=3)]}
    for part, changed in ((part, rows) for part, each in changes.items() for rows in each):
        write_rows(file, changed)
        for how in ([], FURTHER[command], ["--resume"]):
            shown = say(command, folder, *options, *how, code=2)
            assert f"the {part} of the " in shown and "give another --output" in shown
    assert contents_of(folder) == before
    write_rows(file, sums())
    say(command, folder, *options)
    file.unlink()
    shown = say(command, folder, *options)
    assert "no such file" in shown and "What follows is of what was read before" in shown


@pytest.mark.usefixtures("forked")
def test_a_comparison_does_not_mix_answers(tmp_path, file, say):
    methods = '{"a": {"method": "grpo", "exit": {"samples": 2}}}'
    options = [*(option.replace("--", "--base.") for option in SMALL), "--methods", methods]
    options += ["--steps", "1", "--base.data.train", file, "--seeds"]
    say("compare", tmp_path / "out", *options, "1")
    write_rows(file, CORRECTED)
    for seeds in ("1", "2"):
        shown = say("compare", tmp_path / "out", *options, seeds, code=2)
        assert "the answers of the training problems in" in shown
    assert not (tmp_path / "out/runs/a/seed-1").exists()


@pytest.mark.parametrize("command", SOURCES)
def test_a_model_that_changed_since_is_refused(tmp_path, file, model, say, command, monkeypatch):
    """A run takes its weights from the checkpoint, and the tokenizer from where it was."""
    if command == "prepare":  # as for weights of gigabytes
        monkeypatch.setattr(fingerprints, "BLOCK", 10)
    run, options = tmp_path / "run", [*SOURCES[command], file, "--grading.type", "exact"]
    options += ["--engine.max_new_tokens", "4", "--data.max_prompt_tokens", "32"]
    options += ["--model.path", model(1)]
    say(command, run, *options)
    (model(1) / "trainer_state.json").write_text("{}")
    say(command, run, *options)
    trains = command == "train"
    model(2)
    shown = say(command, run, *options, code=0 if trains else 2)
    assert ("the weights of the model changed since" in shown) != trains
    (model(1) / "chat_template.jinja").write_text("{{ messages[0].content }}")
    shown = say(command, run, *options, *FURTHER[command], code=2)
    assert "the tokenizer of the model changed since" in shown


def test_a_grader_that_changed_is_said(tmp_path, file, say, caplog):
    """It may have been mended for this very repetition."""
    module = tmp_path / "grader_that_changes.py"
    module.write_text("def grade(response, answer):\n    return 0.0\n")
    options = ["--samples", "2", "--benchmarks", file, "--plugin_folder", tmp_path]
    options += ["--grading.type", "function", "--grading.workers", "1"]
    options += ["--grading.function", "grader_that_changes:grade"]
    say("evaluate", tmp_path / "run", *options)
    assert "changed since" not in caplog.text
    module.write_text("def grade(response, answer):\n    return 1.0\n")
    for _ in range(2):
        caplog.clear()
        say("evaluate", tmp_path / "run", *options)
        assert "grader_that_changes:grade changed since" in caplog.text


def test_a_folder_without_fingerprints_or_with_broken_ones_is_gone_on_with(tmp_path, file, say):
    folder, options = tmp_path / "run", [*SOURCES["train"], file]
    say("train", folder, *options)
    config = folder / "config.json"
    for read in ({}, "text", {"the model": 3}):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"read": read}))
        say("train", folder, *options)
