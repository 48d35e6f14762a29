"""`rollwise.train`, `evaluate` and `compare` from Python."""

import asyncio
import json
import runpy
import threading
from dataclasses import dataclass

import pytest
from tiny_models import make_model, make_tokenizer

import rollwise
from rollwise.cli import main
from rollwise.errors import ConfigError, DataError, RollwiseError, RunError
from rollwise.records import RunFolder
from rollwise.tasks import make_running_sums

TINY = {
    "steps": 3,
    "prompts": {"batch_size": 4},
    "engine": {"max_new_tokens": 16},
    "evaluation": {"problems": 4, "samples": 2, "every": 2},
    "exit": {"type": "fixed_count", "samples": 2},
}

ROWS = [
    {"problem": p.messages[0]["content"], "answer": p.answer}
    for p in make_running_sums(40, 2, 4, seed=11)
]


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    """Where `runs/` is, and no report: its charts take longer than a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rollwise.commands.train.LiveReport.step_ended", lambda report: None)


def train(**changed):
    return rollwise.train(**{"data": ROWS} | TINY | changed)


def exact(response, answer):
    return float(response.rpartition("=")[2] == answer)


def parity(response, answer):
    return len(response) % 2


def steps_of(result):
    return [row["step"] for row in result.metrics]


def comparable(metrics):
    times = ("elapsed", "seconds", "cpu_seconds")
    return [{k: v for k, v in row.items() if k not in times} for row in metrics]


def test_a_run_as_the_command_line_would_have_it(tmp_path, capsys):
    """The same settings, as keywords, give the same run; nothing is printed."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    seen = []
    result = train(data="rows.jsonl", reward="exact", callbacks=[seen.append], folder="python")
    assert capsys.readouterr() == ("", "")
    options = ["--data.train=rows.jsonl", "--grading.type=exact", "--steps=3"]
    options += ["--prompts.batch_size=4", "--engine.max_new_tokens=16", "--exit.type=fixed_count"]
    options += ["--exit.samples=2", "--evaluation.problems=4", "--evaluation.samples=2"]
    assert main(["train", "--output", "command", *options, "--evaluation.every=2"]) == 0
    command = rollwise.TrainResult(tmp_path / "command")
    assert comparable(result.metrics) == comparable(command.metrics)
    assert result.heldout == command.heldout
    assert result.heldout["after"]["avg@2"] == result.metrics[-1]["heldout"]["avg@2"]
    assert result.summary["steps"] == 3 and result.report.exists()
    assert comparable(seen) == comparable(result.metrics)
    assert [("heldout" in row) for row in seen] == [True, False, True, True]


def lists(rows):
    return rows


def datasets(rows):
    return pytest.importorskip("datasets").Dataset.from_list(rows)


def frames(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


@pytest.mark.parametrize("form", [lists, datasets, frames])
def test_data_in_memory_is_kept_in_the_folder_and_compared_on_resuming(form, tmp_path):
    data = {"train": form(ROWS[:30]), "heldout": form(ROWS[30:])}
    first = train(data=data, reward="exact", folder="run", steps=1)
    assert (first.folder / "inputs/data.train.jsonl").read_text().count("\n") == 30
    assert steps_of(train(data=data, reward="exact", folder="run", steps=2)) == [0, 1, 2]
    other = {"train": form([*ROWS[:29], ROWS[0] | {"answer": "9"}])}
    with pytest.raises(RunError, match=r"`data.train` is not what .* was begun with"):
        train(data=data | other, reward="exact", folder="run")
    assert main(["train", "--output", "run", "--resume", "--steps", "3"]) == 0
    assert steps_of(first) == [0, 1, 2, 3]


@dataclass(frozen=True)
class Credit:
    """A class whose fields are its settings."""

    part: float = 0.5

    def grade(self, response, answer):
        return max(exact(response, answer), self.part)


def of_trl(completions, answer, **columns):
    return [exact(*pair) for pair in zip(completions, answer, strict=True)]


async def later(response, answer):
    await asyncio.sleep(0)
    return exact(response, answer)


REWARDS = {
    "function": exact,
    "lambda": lambda response, answer: exact(response, answer),
    "TRL's": of_trl,
    "asynchronous": later,
    "object": Credit(0.0),
    "grader": rollwise.grading.ExactGrader(),
}


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
def test_a_reward_in_memory_is_that_of_a_grader_by_name(reward):
    named, given = (train(reward=own, steps=1, method="grpo") for own in ("exact", reward))
    assert named.metrics[1]["reward"] == given.metrics[1]["reward"]
    assert given.summary["draws"] > 0 and given.summary["grader_failures"] == 0
    assert named.folder != given.folder


def test_a_class_as_reward_takes_settings_and_a_sampler_may_be_a_class_too():
    @dataclass
    class Fixed(rollwise.Uniform):
        """Stands for one that was written in a notebook."""

    result = train(reward=Credit, grading={"part": 0.25}, prompts={"type": Fixed, "batch_size": 4})
    assert {row["reward"] >= 0.25 for row in result.metrics[1:]} == {True}
    recorded = RunFolder(result.folder).read_config()
    assert recorded["grading"]["type"] == "in memory:Credit" and recorded["grading"]["part"] == 0.25
    assert recorded["prompts"]["type"] == "in memory:Fixed"
    source = (result.folder / "inputs/code.py").read_text()
    assert "class Credit:" in source and "class Fixed(" in source


def test_a_reward_that_fails_costs_a_reward_and_one_that_always_fails_ends_the_run(caplog):
    def odd(response, answer):
        return 1 / (len(response) % 3)

    result = train(reward=odd)
    assert 0 < result.summary["grader_failures"] < result.summary["draws"]
    assert "division by zero" in caplog.text
    with pytest.raises(RunError, match="the grader failed on all"):
        train(reward=lambda response, answer: None)


def test_a_function_resumes_from_python_alone(capsys, caplog):
    def reward(response, answer):
        return exact(response, answer)

    train(reward=reward, folder="run", steps=1)
    assert main(["train", "--output", "run", "--resume", "--steps", "2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "`reward` was given in a Python program, and only its source is kept" in said
    assert "changed since" not in caplog.text

    def reward(response, answer):  # another source
        return 2 * exact(response, answer)

    assert steps_of(train(reward=reward, folder="run", steps=2)) == [0, 1, 2]
    assert "in memory:reward changed since run was begun" in caplog.text
    with pytest.raises(ConfigError, match=r"`grading.function` cannot change"):
        train(reward=exact, folder="run", steps=3)


def test_a_model_in_memory_is_copied_trained_and_evaluated():
    model, tokenizer = make_model(), make_tokenizer()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    given = {"model": model, "tokenizer": tokenizer, "reward": parity, "steps": 1}
    result = train(**given, folder="run", **{"learner.learning_rate": 1e-2})
    assert all(weights.equal(before[name]) for name, weights in model.state_dict().items())
    trained = type(model).from_pretrained(result.model).state_dict()
    assert any(not trained[name].equal(before[name]) for name in trained)
    with pytest.raises(RunError, match=r"`model.path` is not what"):
        train(**given | {"model": make_model(seed=1), "folder": "run", "steps": 2})
    with pytest.raises(ConfigError, match="needs its `tokenizer`"):
        train(model=model)
    evaluated = rollwise.evaluate(
        model=result.model, data=ROWS[:4], reward=exact, samples=2, engine={"max_new_tokens": 16}
    )
    assert evaluated.summary["benchmarks"]["data"]["problems"] == 4
    assert evaluated.report.exists()


def test_a_callback_ends_a_run_which_is_whole_and_goes_on_where_it_is_resumed(tmp_path):
    def stop(row):
        if row["step"] == 1:
            raise rollwise.StopRun

    whole, settings = train(reward=exact, folder="whole"), {"reward": exact, "folder": "run"}
    stopped = train(callbacks=[stop], **settings)
    assert steps_of(stopped) == [0, 1] and stopped.summary["stopped"]
    assert stopped.heldout["after"] == stopped.metrics[-1]["heldout"]
    assert "The run has ended." in stopped.report.read_text()
    assert steps_of(train(**settings)) == [0, 1]
    resumed = rollwise.train(reward=exact, folder="run", resume=True)
    assert "stopped" not in resumed.summary
    evaluated = resumed.metrics[1].pop("heldout")
    assert evaluated and comparable(resumed.metrics[2:]) == comparable(whole.metrics[2:])


def test_an_error_in_a_callback_is_raised_once_the_run_is_saved(tmp_path):
    class Pruned(Exception):
        """As optuna.TrialPruned."""

    def prune(row):
        if row["step"] == 2:
            raise Pruned

    with pytest.raises(Pruned):
        train(reward=exact, callbacks=[prune], folder="run")
    result = rollwise.TrainResult(tmp_path / "run")
    assert result.summary["stopped"] and steps_of(result) == [0, 1, 2] and result.model.is_dir()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"learning_rate": 1}, ConfigError, "there is no setting `learning_rate`; did you mean"),
        ({"learner": {"learning_rate": "x"}}, ConfigError, "`learner.learning_rate` must be"),
        (
            {"data": [{"problem": "1+1", "answer": {2}}]},
            DataError,
            "`data.train`, row 0 .* must hold text",
        ),
        ({"data": ROWS[:3]}, DataError, "3 problems are too few to hold some out"),
        ({"data": "nowhere.jsonl"}, DataError, "no such file"),
        ({"reward": 3}, ConfigError, "`reward` must be a grader's name, a function"),
        ({"reward": "no_module:f"}, ConfigError, "no module 'no_module'"),
        ({"resume": True}, ConfigError, "give its folder"),
        ({"config": ["single"]}, ConfigError, "`config` must be the path of a TOML file"),
    ],
)
def test_errors_are_those_of_the_command_and_leave_nothing_behind(tmp_path, given, error, said):
    with pytest.raises(error, match=said) as caught:
        train(**given)
    assert isinstance(caught.value, RollwiseError)
    assert [path.name for path in tmp_path.rglob("*") if path.name != "runs"] == []


def test_a_reward_that_a_belief_does_not_take_is_said(caplog):
    train(reward=lambda response, answer: 0.5, method="single", steps=1)
    assert "a response got 0.5, which a belief takes as incorrect" in caplog.text
    caplog.clear()
    train(reward=lambda response, answer: {"score": 0.5, "acc": 1}, method="single", steps=1)
    assert "belief takes" not in caplog.text


def test_it_runs_in_a_cell_of_a_notebook_and_in_a_thread():
    async def cell():
        return train(reward=later, steps=1)

    found = [asyncio.run(cell())]
    thread = threading.Thread(target=lambda: found.append(train(reward=later, steps=1)))
    thread.start()
    thread.join()
    assert comparable(found[0].metrics) == comparable(found[1].metrics)


def test_optuna_prunes_a_trial_whose_run_is_whole(root, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    search = runpy.run_path(str(root / "examples/optuna_search.py"))["search"]
    settings = {name: value for name, value in TINY.items() if name != "evaluation"}
    worst = "optuna.pruners.MedianPruner.prune"
    monkeypatch.setattr(worst, lambda pruner, study, trial: trial.number == 1)
    study = search(2, **settings | {"evaluation.problems": 4, "evaluation.samples": 2})
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED"]
    whole, pruned = (rollwise.TrainResult(tmp_path / f"runs/search/trial-{i}") for i in (0, 1))
    assert (len(whole.metrics), len(pruned.metrics)) == (4, 1)
    assert pruned.summary["stopped"] and pruned.report.exists()
    assert study.best_value == whole.heldout["after"]["avg@2"]["value"]


def test_a_folder_is_for_one_run_at_a_time(tmp_path):
    def again(row):
        train(reward=exact, folder="run")

    with pytest.raises(RunError, match="in use by another thread"):
        train(reward=exact, folder="run", callbacks=[again])


def test_methods_with_a_function_are_compared_in_this_process():
    methods = {"two": {}, "three": {"exit": {"samples": 3}}}
    base = {name: value for name, value in TINY.items() if name != "steps"}
    result = rollwise.compare(
        methods=methods, base=base, data=ROWS, reward=exact, steps=1, seeds=2, evaluations=1
    )
    assert result.summary["methods"].keys() == {"two", "three"}
    assert result.report.exists() and result.folder.parent.name == "runs"
