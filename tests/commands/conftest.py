"""Runs of `rollwise evaluate` and `rollwise prepare` that take a second, and fakes for them."""

import json

import numpy as np
import pytest
from drawn import TINY
from tiny_models import make_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rollwise.cli import main
from rollwise.commands import compare_runs, drawing
from rollwise.engines import Engine
from rollwise.step import LostDraw, Response
from rollwise.training.build import LocalBackend


class FakeEngine(Engine):
    """Answers by a table: key -> the texts of its responses; a text of None is a lost draw."""

    def __init__(self, texts):
        self.texts = texts

    async def complete(self, draw, prompt):
        texts = self.texts(draw.key) if callable(self.texts) else self.texts[draw.key]
        text = texts[draw.index % len(texts)]
        if text is None:
            raise LostDraw("as told")
        return Response([5, 1], np.zeros(2, dtype=np.float32), text)

    def load_weights(self, weights):
        pass


@pytest.fixture
def speak(monkeypatch):
    """Has the engine say what a table says: `speak({key: [text, ...]})`."""

    def speak(texts):
        monkeypatch.setattr(LocalBackend, "make_engine", lambda _: FakeEngine(texts))

    return speak


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    """The folder of a tiny random model that can read anything, byte by byte."""
    folder = tmp_path_factory.mktemp("reader")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0} | {letter: i for i, letter in enumerate(alphabet, 1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    vocabulary_of = {"vocab_size": len(vocabulary), "eos_token_id": 0, "pad_token_id": None}
    make_model(context=2048, **vocabulary_of).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whole(request, tmp_path_factory):
    """An evaluation or preparation of the built-in task, by the module, without interruption."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    command = request.module.__name__.rpartition("test_")[2]
    assert main([command, "--output", str(folder), *TINY]) == 0
    return folder


@pytest.fixture
def write(tmp_path):
    """Writes a file of settings: `write(text)`."""

    def write(text):
        path = tmp_path / "settings.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def say(capsys):
    """Runs a command, which must end with `code`: `say("evaluate", folder)` -> what it shows."""

    def run(command, folder, *options, code=0):
        found = main([command, "--output", str(folder), *map(str, options)])
        shown = " ".join("".join(capsys.readouterr()).split())
        assert found == code, shown
        return shown

    return run


@pytest.fixture
def doctor(capsys, write):
    """Runs `rollwise doctor`: `doctor(settings, *options)` -> exit code and checks by name."""

    def run(settings=None, *options):
        file = [] if settings is None else [str(write(settings))]
        code = main(["doctor", *file, "--json", *options])
        found = json.loads(capsys.readouterr().out)
        assert found["ok"] == (code == 0)
        return code, {each["name"]: each for each in found["checks"]}

    return run


@pytest.fixture
def forked(monkeypatch):
    """Processes of runs are forked: they need not import torch again."""
    monkeypatch.setattr(compare_runs, "START", "fork")


class Killed(BaseException):
    """What nothing catches."""


@pytest.fixture
def kill_after(monkeypatch, say):
    """A command dies in the midst of writing a portion: `kill_after(portions, command, folder)`."""
    write = drawing.write_part

    def run_until(portions, *words):
        left = [portions]

        def write_or_die(path, *content):
            if left[0] == 0:
                monkeypatch.setattr(drawing, "write_part", write)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_name(f".{path.name}.partial").write_text("half of it")
                raise Killed
            left[0] -= 1
            write(path, *content)

        monkeypatch.setattr(drawing, "write_part", write_or_die)
        with pytest.raises(Killed):
            say(*words)

    return run_until
