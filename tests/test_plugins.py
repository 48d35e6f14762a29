"""Plug-ins: named in a settings file or on the command line, found, checked, and run."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from small_runs import SMALL
from transformers import PreTrainedTokenizerFast

from rollwise.beliefs.testing import BeliefContract
from rollwise.cli import main
from rollwise.config import make_config
from rollwise.engines.testing import EngineContract
from rollwise.environments import Opening, Turn
from rollwise.errors import ConfigError
from rollwise.grading import FunctionGrader
from rollwise.models.loading import model_path
from rollwise.plugins import load_plugin
from rollwise.prompts import Uniform
from rollwise.prompts.testing import PromptSamplerContract
from rollwise.records import RunFolder
from rollwise.records.states import load_sampler, save_sampler
from rollwise.sampling.testing import check_exit_rule, check_objective, check_schedule

EXAMPLES = Path(__file__).parents[1] / "examples/plugins"

TINY = ["--steps=1", *SMALL]


@pytest.mark.parametrize(
    "name", ["confident", "own_choice", "own_lesson", "equal_shares", "shown_work"]
)
def test_an_example_trains_and_resumes_from_any_folder(name, root, tmp_path, monkeypatch):
    run = tmp_path / "run"
    toml = str(root / f"examples/plugins/{name}.toml")
    assert main(["train", toml, "--output", str(run), *TINY]) == 0
    assert RunFolder(run).read_config()["plugin_folder"] == str(root / "examples/plugins")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--output", str(run), "--resume", "--steps", "2"]) == 0
    assert RunFolder(run).read_metrics()[-1]["step"] == 2


@pytest.fixture
def example(monkeypatch):
    """The class of an example, by its `module:Class`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return lambda name: load_plugin(name, [str(EXAMPLES)])


def test_rules_schedules_and_objectives_of_the_examples_keep_their_contracts(example):
    check_exit_rule(example("confident:Confident")())
    check_schedule(example("even_rounds:EvenRounds")())
    check_objective(example("negatives_first:NegativesFirst")())


class TestSamplerOfTheExamples(PromptSamplerContract):
    def make(self, keys, batch_size, seed=0):
        kind = load_plugin("least_seen:LeastSeen", [str(EXAMPLES)])
        return kind(keys, batch_size, seed)


class TestSamplerOfTheExamplesThatSeesColumns(PromptSamplerContract):
    def make(self, keys, batch_size, seed=0):
        kind = load_plugin("equal_shares:EqualShares", [str(EXAMPLES)])
        return kind(keys, batch_size, seed, columns={"level": [i % 3 for i in range(len(keys))]})


def test_a_sampler_is_given_the_columns_of_its_prompts(example):
    levels = [1] * 20 + [2] * 2 + [None] * 8
    sampler = example("equal_shares:EqualShares")(range(30), 6, columns={"level": levels})
    for _ in range(5):
        assert sorted(str(levels[key]) for key in sampler.ask()) == [
            "1",
            "1",
            "2",
            "2",
            "None",
            "None",
        ]


class Judging(BaseHTTPRequestHandler):
    """Gives marks by what is asked: 9 where the response is right, 4 elsewhere, and once none."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        [message] = request["messages"]
        self.asked.append(message["content"])
        mark = (
            "well" if "who knows" in message["content"] else 9 if "=3" in message["content"] else 4
        )
        choice = {"index": 0, "finish_reason": "stop"}
        choice["message"] = {"role": "assistant", "content": f"8 of 10? No: {mark}"}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "judge"}
        content = json.dumps({**body, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def test_the_judge_of_the_examples_asks_a_server_with_the_prompt(monkeypatch, caplog):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with ThreadingHTTPServer(("127.0.0.1", 0), Judging) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {"url": f"http://127.0.0.1:{server.server_port}/v1"}
        options = {"timeout": 60.0, "workers": 1, "settings": settings, "folder": str(EXAMPLES)}
        with FunctionGrader("judge:Judge", **options) as judge:
            rows = [{"prompt": f"1+2 is? ({i})", "solution": "not sent"} for i in range(3)]
            right, wrong, unknown = judge.scores(["=3", "=4", "who knows"], ["3"] * 3, rows)
        server.shutdown()
    assert (float(right), right.acc, float(wrong), wrong.acc) == (0.9, 1.0, 0.4, 0.0)
    assert (float(unknown), judge.failures) == (0.0, 1)
    assert "judge:Judge: `grade` (" in caplog.text and "no mark from 0 to 10" in caplog.text
    assert "1+2 is? (0)" in Judging.asked[0] and "not sent" not in "".join(Judging.asked)


class TestBeliefOfTheExamples(BeliefContract):
    def make(self, total):
        return load_plugin("last_visits:LastVisits", [str(EXAMPLES)])(total)


class TestEngineOfTheExamples(EngineContract):
    def make(self):
        kind = load_plugin("adding_engine:AddingEngine", [str(EXAMPLES)])
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
        return kind().open(SimpleNamespace(tokenizer=tokenizer, max_new_tokens=16))


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's in the current folder."""
    (tmp_path / "ends_at_once.py").write_text("exit()\n")
    (tmp_path / "mine_for_plugins.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import Annotated\n"
        "from annotated_types import Ge\n"
        "import rollwise as rw\n"
        "@dataclass(frozen=True)\n"
        "class AnyCorrect(rw.ExitRule):\n"
        "    least: Annotated[int, Ge(1)] = 1\n"
        "    def satisfied(self, positives, negatives):\n"
        "        return positives >= self.least\n"
        "@dataclass\n"
        "class NoTell(rw.PromptSampler):\n"
        "    keys: list\n"
        "    def ask(self, count=None, exclude=()):\n"
        "        return self.keys\n"
        "@dataclass(frozen=True)\n"
        "class NoRule:\n"
        "    least: int = 1\n"
        "@dataclass(frozen=True)\n"
        "class NoParent(NoRule):\n"
        "    satisfied = AnyCorrect.satisfied\n"
        "@dataclass(frozen=True)\n"
        "class BadDefault(AnyCorrect):\n"
        "    least: int = 'few'\n"
        "@dataclass(frozen=True)\n"
        "class NotMade(AnyCorrect):\n"
        "    def __post_init__(self):\n"
        "        raise KeyError('colour')\n"
        "class Undecorated(rw.beliefs.Belief):\n"
        "    def __post_init__(self):\n"
        "        self.correct = 0\n"
        "    def believe(self, indices):\n"
        "        return indices, indices\n"
        "    def learn(self, indices, correct, drawn):\n"
        "        self.correct += 1\n"
        "@dataclass(frozen=True)\n"
        "class Untyped(AnyCorrect):\n"
        "    other: 'Colour' = 1\n"
        "@dataclass(frozen=True)\n"
        "class OurName(AnyCorrect):\n"
        "    kind: int = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("section", "settings", "message"),
    [
        ("exit", {"type": "nowhere_at_all:Rule"}, "`exit.type`: 'nowhere_at_all:Rule': no module"),
        ("exit", {"type": "ends_at_once:Rule"}, "importing ends_at_once ended in exit(None)"),
        ("exit", {"type": "mine_for_plugins:Nothing"}, "which has AnyCorrect, BadDefault"),
        (
            "exit",
            {"type": "mine_for_plugins:NoRule"},
            "a dataclass that inherits from `rollwise.ExitRule`",
        ),
        ("exit", {"least": "few"}, "`exit.least` must be an integer"),
        ("exit", {"least": 0}, "`exit.least` must be at least 1; it is 0"),
        ("exit", {"most": 1}, "`mine_for_plugins:AnyCorrect`, which has `exit.give_up_below`"),
        ("exit", {"type": "mine_for_plugins:NoParent"}, "inherits from `rollwise.ExitRule`; it d"),
        ("exit", {"type": "mine_for_plugins:BadDefault"}, "`exit.least` must be an integer"),
        ("exit", {"type": "mine_for_plugins:NotMade"}, "NotMade: `__post_init__` ("),
        ("exit", {"type": "mine_for_plugins:Untyped"}, "is unknown: name 'Colour' is not defined"),
        (
            "exit",
            {"type": "mine_for_plugins:OurName"},
            "has a field `kind`, which every `exit` has",
        ),
        # Its `__post_init__` would never be called.
        ("belief", {"type": "mine_for_plugins:Undecorated"}, "Belief`; it is not a dataclass"),
        ("prompts", {"type": "mine_for_plugins:NoTell"}, "PromptSampler`; it lacks `tell`"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said_in_a_sentence(mine, section, settings, message):
    with pytest.raises(ConfigError) as error:
        make_config({section: {"type": "mine_for_plugins:AnyCorrect", **settings}})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_state_that_a_sampler_cannot_load_is_named(tmp_path):
    class Strict(Uniform):
        def load_state_dict(self, state):
            self.queue = state["queue"]

    sampler = Strict(["a"], 1)
    save_sampler(tmp_path, sampler)
    message = r":.*Strict: its `load_state_dict` raised KeyError: 'queue'"
    with pytest.raises(ValueError, match=message):
        load_sampler(tmp_path, sampler)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"belief": {"type": "latest"}}, r"`belief\.type` must be `own` with `prompts.type`"),
        ({"prompts": {"visits": 2}}, "`visits` needs a sampler that takes it; least_seen:L"),
    ],
)
def test_a_belief_and_a_limit_need_a_sampler_that_takes_them(monkeypatch, given, message):
    monkeypatch.setattr(sys, "path", [*sys.path])
    layers = {"prompts": {"type": "least_seen:LeastSeen"}, "plugin_folder": str(EXAMPLES)}
    with pytest.raises(ConfigError, match=message):
        make_config(layers, given)


def test_settings_of_a_plugin_are_its_fields(mine):
    rule = make_config({"exit": {"type": "mine_for_plugins:AnyCorrect", "least": 3}}).exit.make()
    assert rule.least == 3
    with pytest.raises(ValueError, match=r"^least must be at least 1, got 0$"):
        type(rule)(0)  # as in a program
    assert make_config({}).exit.type == "fixed_count"  # others see nothing of it


def test_a_backend_of_the_users_trains_the_run(tmp_path, monkeypatch):
    """It is opened with all settings, its own among them; here it stands around ours."""
    (tmp_path / "mine_as_backend.py").write_text(
        "from dataclasses import dataclass\n"
        "from rollwise.training.build import BackendSettings, LocalSettings\n"
        "opened = []\n"
        "@dataclass(frozen=True)\n"
        "class Mine(BackendSettings):\n"
        "    zone: str = 'a'\n"
        "    def open(self, config, checkpoint):\n"
        "        opened.append((self.zone, config.backend.zone, checkpoint))\n"
        "        return LocalSettings().open(config, checkpoint)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = ["--backend.type", "mine_as_backend:Mine", "--backend.zone", "b"]
    assert main(["train", "--output", str(tmp_path / "run"), *given, *TINY]) == 0
    assert sys.modules["mine_as_backend"].opened == [("b", "b", None)]
    assert RunFolder(tmp_path / "run").read_config()["backend"]["zone"] == "b"


def test_the_environment_of_the_examples_plays(example):
    kind = example("guessing:Guessing")
    game = kind(highest=60).begin(Opening([], "", seed=3))
    assert game.step("why?") == Turn("a number, please", reward=0.0)
    low, high = 1, 60
    while not (turn := game.step(str(guess := (low + high) // 2))).done:
        low, high = (guess + 1, high) if turn.says == "higher" else (low, guess - 1)
    assert turn == Turn(done=True, reward=1.0)
    assert guess == kind(highest=60).begin(Opening([], "", seed=3)).number
