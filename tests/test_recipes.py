"""The recipes: all that is active stands in the file, with its source; their headers are right."""

import importlib
import json
import re
import sys
import threading
import tomllib
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rollwise.cli import main
from rollwise.config import PlanConfig, make_config, make_settings, read_toml
from rollwise.environments import Opening
from rollwise.integrations.verl.settings import read_settings
from rollwise.methods import METHODS
from rollwise.records import flatten

FOLDER = Path(__file__).parents[1] / "examples"
PLAN = FOLDER / "recipes/plan.toml"
RECIPES = [p for p in sorted(FOLDER.glob("recipes/*.toml")) if p != PLAN]
ALL = [*RECIPES, *sorted(FOLDER.glob("verl/*.toml"))]
OFF = (0, None, "none", False, "default")
"""Values with which a setting of the learner does nothing."""
OF_THE_MACHINE = {"learner.packed"}
DECISIVE = ("prompts", "belief", "exit", "schedule", "group", "advantage", "step", "learner")


def settings_of(path):
    """The run's settings, and those that the file gives."""
    given = read_toml(path)
    config = read_settings([given])[0] if "verl" in given else make_config(given)
    return config, flatten({key: value for key, value in given.items() if key != "verl"}, ".")


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_all_that_is_active_stands_in_the_file_with_its_source(path):
    config, given = settings_of(path)
    learner = flatten({"learner": asdict(config.learner)}, ".")
    active = {name for name, value in learner.items() if value not in OFF} - OF_THE_MACHINE
    if config.learner.passes == 1:
        active -= {"learner.passes", "learner.target_kl"}
    active |= flatten(METHODS[config.method].settings, ".").keys()
    active |= {"method", "steps", "engine.temperature", "engine.max_new_tokens", "model.path"}
    assert active - given.keys() == set()
    assert flatten(asdict(config), ".").items() >= {(n, v) for n, v in given.items() if n in active}
    section, bare = "", []
    for line in path.read_text().splitlines():
        section = line.strip("[]") if line.startswith("[") else section
        if section in DECISIVE and " = " in line and "#" not in line:
            bare.append(line)
    assert len(bare) <= 5, bare  # those that the line above explains


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_the_header_says_which_rates_and_how_many_responses(path):
    header = path.read_text().partition("\nmethod")[0]
    config, _ = settings_of(path)
    low, high = map(float, re.search(r"Rates to try: (\S+) to ([\d.e-]*\d)", header).groups())
    assert low <= config.learner.learning_rate <= high
    said = re.search(r"Responses: (\d+) steps of (\d+)(?: x (\d+))?(?: = ([\d,]+))?", header)
    steps, size, each, total = said.groups()
    assert (int(steps), int(size)) == (config.steps, config.prompts.batch_size)
    if total:
        assert int(each or 1) == config.exit.samples
        assert int(total.replace(",", "")) == int(steps) * int(size) * int(each or 1)
    assert f"examples/{path.relative_to(FOLDER)}" in header


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """What a step of each recipe costs, by fewer steps than `rollwise plan` takes by default."""
    folder = tmp_path_factory.mktemp("plan")
    less = ["--steps=8", "--warmup=2", "--pass_rates.prompts=1024"]
    assert main(["plan", str(PLAN), *less, "--output", str(folder)]) == 0
    return json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_hours_are_those_of_the_plan(path, planned):
    config, _ = settings_of(path)
    said = float(re.search(r"Hours: ([\d.]+) of", path.read_text())[1])
    assert said == pytest.approx(
        planned[path.stem]["seconds"]["value"] * config.steps / 3600, rel=0.15
    )
    plan = tomllib.loads(PLAN.read_text())
    method = make_settings(PlanConfig, plan).method(path.stem)
    assert (method.method, method.exit) == (config.method, config.exit)
    assert method.prompts.batch_size == config.prompts.batch_size


@pytest.fixture
def load(monkeypatch):
    """Loads a module beside the recipes: `load("judge")`."""
    monkeypatch.syspath_prepend(str(FOLDER / "recipes"))

    def load(name):
        monkeypatch.delitem(sys.modules, name, raising=False)  # another example has that name too
        return importlib.import_module(name)

    return load


def test_the_calculator_answers_calls_and_ends_at_an_answer(load):
    tool = load("calculator_tool").CalculatorTool()
    play = tool.begin(Opening((), "7", 0))
    said = {
        "so <calc>3 * (4 + 5) - -1/2</calc>": "27.5",
        "<calc>1/0</calc>\n": "this is no expression of numbers: ZeroDivisionError",
        "<calc>__import__('os')</calc>": "this is no expression of numbers: KeyError",
        "<calc>2 +</calc>": "this is no expression of numbers: SyntaxError",
        f"<calc>{'(' * 150}</calc>": "this is no expression of numbers: SyntaxError",
    }
    for reply, answer in said.items():
        turn = play.step(reply)
        assert (turn.says, turn.done) == (answer, False)
    ended = play.step(r"<calc>1+1</calc> gives \boxed{2}")
    assert ended.done and ended.reward is None


@pytest.fixture
def server():
    """A server with OpenAI's API that says `server.reply` and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.asked.append((self.path, json.loads(asked)))
            message = {"message": {"content": self.server.reply}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [message]}).encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_the_judge_gives_the_grade_that_the_model_says(load, server):
    judge = load("judge").Judge(f"http://127.0.0.1:{server.server_port}/v1", "large")
    for reply, reward in (("Grade: 3\nno:\nGrade: 7", 0.7), ("Grade: 99", 1.0), ("fine", 0.0)):
        server.reply = reply
        assert judge.grade("<think>Grade: 9</think>Paris", "Paris.", prompt="Capital?") == reward
    path, asked = server.asked[0]
    assert path == "/v1/chat/completions" and asked["model"] == "large"
    content = asked["messages"][0]["content"]
    assert "Capital?" in content and "<answer>\nParis\n</answer>" in content
