"""Environments of verifiers: what they ask, what they reward, and which are refused."""

import importlib.util
import json
import sys
import textwrap

import pytest

from rollwise.cli import main
from rollwise.environments import EnvironmentSource
from rollwise.errors import ConfigError, DataError
from rollwise.grading import EnvironmentGrader
from rollwise.tasks import read_problems

TASKSET = """
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        answer: str

    class Task(vf.Task[Data]):
        @vf.reward(weight=2.0)
        async def is_right(self, trace: vf.Trace) -> float:
            return float(trace.last_reply == self.data.answer)

        @vf.reward(weight=0.5)
        async def asked(self, task, trace) -> float:
            roles = [message.role for message in trace.messages]
            return float(roles == ["system", "user", "assistant"] and task.prompt == "2+2?")

    class Config(vf.TasksetConfig):
        count: int = 3

    class Rows(vf.Taskset[Task, Config]):
        def load(self):
            for i in range(self.config.count):
                data = Data(prompt=f"{i}+2?", answer=str(i + 2), system_prompt="Add.")
                yield Task(data, self.config.task)

    __all__ = ["Rows"]
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module in the current directory: `write(name, TASKSET, (old, new), ...)`."""
    pytest.importorskip("verifiers")
    monkeypatch.chdir(tmp_path)

    def write(name, text, *changes):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        sys.modules.pop(name, None)  # of another test
        importlib.invalidate_caches()
        return name

    return write


def read(name, arguments=None, **options):
    source = EnvironmentSource(name, arguments or {})
    return read_problems("environment", environment=source, **options).problems


def test_its_rows_are_the_problems_as_it_asks_them(write):
    problems = read(write("asking", TASKSET), {"count": 4}, system_prompt="Not said.")
    assert [[(m["role"], m["content"]) for m in p.messages] for p in problems] == [
        [("system", "Add."), ("user", f"{i}+2?")] for i in range(4)
    ]
    assert [json.loads(p.answer)["answer"] for p in problems] == ["2", "3", "4", "5"]
    assert {p.source for p in problems} == {"asking"}
    assert [p.key for p in problems] == [p.key for p in read("asking", {"count": 4})]


def test_its_rewards_are_those_of_its_functions_by_their_weights(write):
    """2 for the right answer; 0.5 for being asked "2+2?"."""
    zero, _, two = read(write("rewarding", TASKSET))
    with EnvironmentGrader("rewarding", workers=1) as grader:
        rewards = grader.grade(["4", "5", "2"], [two.answer, two.answer, zero.answer])
        assert rewards.tolist() == [2.5, 0.5, 2.0]
        assert grader.failures == 0


DATA = 'Data(prompt=f"{i}+2?",'


def within(of, text):
    """A change that writes `text` into a class."""
    return of, f"{of}\n        {text}\n"


TASK, ROWS = "class Task(vf.Task[Data]):", "class Rows(vf.Taskset[Task, Config]):"
TOOLS = 'class Tools(vf.Toolset[vf.ToolsetConfig]):\n        TOOL_PREFIX = "tools"\n\n    '
TOOLSETS = """@classmethod
        def toolsets(cls, config):
            return [Tools(vf.ToolsetConfig())]"""
GAME = """class Game(vf.Env[vf.SingleAgentEnvConfig]):
        async def run(self, task, agents): ...

    """
UNREWARDED = [(f"@vf.reward(weight={weight})", "@vf.metric") for weight in (2.0, 0.5)]
REFUSED = {
    "endless": ([within(ROWS, "INFINITE = True")], "never ends"),
    "empty": ([("count: int = 3", "count: int = 0")], "has no tasks"),
    "unrewarded": (UNREWARDED, "has no reward"),
    "prepared": ([within(TASK, "async def setup(self, trace, runtime): ...")], "needs a runtime"),
    "tooled": ([(ROWS, TOOLS + ROWS), within(TASK, TOOLSETS)], "has tools"),
    "played": (
        [(ROWS, GAME + ROWS), ('["Rows"]', '["Game", "Rows"]')],
        "has an environment of its own",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_taskset_that_takes_more_than_a_response_is_refused(write, name):
    changes, reason = REFUSED[name]
    with pytest.raises(ConfigError, match=f"`data.environment` must have .*'{name}' .*{reason}"):
        EnvironmentGrader(write(name, TASKSET, *changes))


def test_a_prompt_that_is_not_text_is_refused(write):
    write("silent", TASKSET, (DATA, "Data("))
    with pytest.raises(DataError, match=r"silent, row 0 .from 0. must have a prompt of text"):
        read("silent")


def test_what_cannot_be_opened_says_why(write):
    write("broken", "raise ValueError('of its own')")
    with pytest.raises(ConfigError, match="'broken' cannot be loaded: ValueError: of its own"):
        read("broken")
    with pytest.raises(ConfigError, match="'nowhere' cannot be loaded: ModuleNotFoundError"):
        read("nowhere")
    with pytest.raises(ConfigError, match=r"'asked' cannot be loaded: .*cuont"):
        read(write("asked", TASKSET), {"cuont": 5})
    with pytest.raises(ConfigError, match=r"`data\.environment` must name"):
        read("")


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is not None, reason="it is installed")
def test_without_the_library_its_extra_is_named():
    with pytest.raises(ConfigError, match=r"not installed: pip install 'rollwise\[verifiers\]'"):
        EnvironmentGrader("any")


@pytest.mark.slow
def test_the_example_prepares_trains_and_evaluates(root, tmp_path, monkeypatch):
    pytest.importorskip("verifiers")
    monkeypatch.chdir(root / "examples/verifiers")
    few = ["--data.environment_arguments", '{"count": 60}', "--grading.workers", "1"]
    few += ["--engine.batch_size", "64"]
    named = ["--data.environment", "sums", *few]
    prepared, run, evaluation = (str(tmp_path / name) for name in ("prepared", "run", "evaluation"))
    assert main(["prepare", "--output", prepared, "--samples", "2", *named]) == 0
    chosen = read_problems(tmp_path / "prepared/prepared.parquet").problems
    assert len(chosen) == 60

    tiny = ["--steps", "2", "--prompts.batch_size", "8", "--evaluation.samples", "2"]
    file = ["--data.train", str(tmp_path / "prepared/prepared.parquet")]
    assert main(["train", "sums.toml", "--output", run, *file, *few, *tiny]) == 0
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["trained_groups"] > 0 for line in lines[1:]] == [True] * 2
    assert [line["grader_failures"] for line in lines] == [0] * 3

    drawn = ["--model.path", run, "--samples", "2", "--engine.max_new_tokens", "48"]
    assert main(["evaluate", "--output", evaluation, *drawn, *named]) == 0
    summary = json.loads((tmp_path / "evaluation/summary.json").read_text())
    assert summary["benchmarks"].keys() == {"environment"}
