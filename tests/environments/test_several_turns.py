"""Environments of verifiers with several turns or tools: each draw is a rollout of them."""

import json

import numpy as np
import pytest
from environment_texts import CLASSIC, TASKSET
from test_environments import INSTALLED, needs_classic

from rollwise.engines import Completion, EpisodeEngine
from rollwise.environments import EnvironmentSource, Opening
from rollwise.errors import ConfigError
from rollwise.records import RunFolder
from rollwise.sampling import Draw

TOOLS = """
    import verifiers as vf
    from datasets import Dataset

    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

    def is_right(completion, answer):
        return float(completion[-1]["content"] == answer)

    def load_environment(**others):
        rows = [{"question": "2+2?", "answer": "4"}]
        rubric = vf.Rubric(funcs=[is_right])
        return vf.ToolEnv(
            tools=[add], dataset=Dataset.from_list(rows), rubric=rubric, max_turns=3, **others
        )
"""


class Saying:
    """An engine that says given texts, one a turn."""

    free_slots = None

    def __init__(self, *texts):
        self.texts, self.under_way, self.contexts = list(texts), [], []

    def submit(self, draws, prompts):
        self.under_way += draws
        self.contexts += [prompts[draw.key] for draw in draws]

    def wait(self):
        done, self.under_way = self.under_way, []
        return [Completion(d, [1], np.zeros(1, np.float32), self.texts.pop(0), False) for d in done]

    def cancel(self, draws):
        self.under_way = [draw for draw in self.under_way if draw not in draws]
        return 0


def play(name, *texts, encode=lambda says: [9]):
    environment = EnvironmentSource(name, in_episodes=True).open()
    question = environment.questions("train")[0]
    problem = Opening(question.messages, question.row, seed=0)
    with EpisodeEngine(Saying(*texts), environment, {"q": problem}, encode) as engine:
        engine.submit([Draw("q", 0, 1)], {"q": [5]})
        [outcome] = engine.wait()
    return question, outcome


def call(**arguments):
    return f"<tool_call>{json.dumps({'name': 'add', 'arguments': arguments})}</tool_call>"


@needs_classic
def test_tools_are_described_called_and_answered(write):
    heard = []
    name = write("with_tools", TOOLS)
    said = (f"so: {call(a=2, b=2)}", "4")
    question, outcome = play(name, *said, encode=lambda says: heard.append(says) or [9])
    assert question.messages[0]["role"] == "system"
    assert '"name": "add"' in question.messages[0]["content"]
    assert heard == [[{"role": "tool", "content": "4"}]]
    assert (outcome.end, outcome.reward, outcome.price.turns) == ("done", 1.0, 2)
    assert outcome.tokens == [1, 9, 1]


@needs_classic
@pytest.mark.parametrize(
    "said, reward, turns",
    [
        (("4",), 1.0, 1),
        (("<tool_call>no JSON</tool_call>",), 0.0, 1),
        ((call(a=1, b=1), call(a=1), call(a=3, b=1)), 0.0, 3),
    ],
)
def test_what_is_no_call_is_the_answer_and_turns_are_bounded(write, said, reward, turns):
    _, outcome = play(write("with_tools", TOOLS), *said)
    assert (outcome.end, outcome.reward, outcome.price.turns) == ("done", reward, turns)


@needs_classic
def test_an_environment_of_a_single_turn_is_the_shortest_episode(write):
    _, outcome = play(write("single", CLASSIC), "2")
    assert (outcome.end, outcome.reward, outcome.price.turns) == ("done", 2.5, 1)


@needs_classic
def test_a_rollout_is_ended_with_its_episode(write):
    name = write("with_tools", TOOLS)
    environment = EnvironmentSource(name, in_episodes=True).open()
    question = environment.questions("train")[0]
    problem = Opening(question.messages, question.row, seed=0)
    inner = Saying(call(a=1, b=1))
    with EpisodeEngine(inner, environment, {"q": problem}, lambda says: [9]) as engine:
        engine.submit([Draw("q", 0, 1)], {"q": [5]})
        [first] = inner.wait()
        engine._end_turn(first)
        engine._take_answers(wait=None)
        [playing] = engine._playing.values()
        assert engine.cancel([Draw("q", 0, 1)]) == 1
    assert playing.play._rollout.cancelled()


@needs_classic
def test_the_example_of_several_turns_trains(root, tmp_path, monkeypatch):
    from rollwise.cli import main

    monkeypatch.chdir(root / "examples/verifiers")
    run = tmp_path / "run"
    options = ["--steps", "1", "--prompts.batch_size", "8", "--evaluation.problems", "4"]
    options += ["--evaluation.samples", "1", "--data.environment_arguments", '{"count": 64}']
    assert main(["train", "calculator.toml", "--output", str(run), *options]) == 0
    [step] = [line for line in RunFolder(run).read_metrics() if line["step"] == 1]
    assert step["turns"] > 1
    assert step["ends"]["done"] > 0 == step["ends"]["failed"]
    samples = RunFolder(run).read_samples()
    assert {row["reward"] for row in samples} <= {0.0, 1.0}
    played = ["--episode.type", "environment", "--data.environment", "calculator"]
    drawn = ["--data.problems", "4", "--samples", "2", "--engine.max_new_tokens", "48"]
    evaluation = tmp_path / "evaluation"
    options = ["--model.path", str(run), *played, *drawn]
    assert main(["evaluate", "--output", str(evaluation), *options]) == 0
    summary = json.loads((evaluation / "summary.json").read_text())
    assert summary["benchmarks"]["environment"]["turns"] > 1


@pytest.mark.skipif(not INSTALLED, reason="needs verifiers")
def test_a_taskset_is_refused(write):
    with pytest.raises(ConfigError, match="it is a taskset, whose turns verifiers plays"):
        EnvironmentSource(write("tasks", TASKSET), in_episodes=True).open()


def test_the_page_shows_the_example_of_several_turns(root):
    page = (root / "docs/verifiers.md").read_text()
    for name in ("calculator.py", "calculator.toml"):
        assert (root / "examples/verifiers" / name).read_text() in page
