"""`rollwise evaluate`: what it writes and shows, how it resumes, what it refuses."""

import shutil
from dataclasses import asdict

import pyarrow.parquet as pq
import pytest
from drawn import TINY, summary_of
from row_files import write_rows

from rollwise.cli import main
from rollwise.config import EvaluateConfig, PrepareConfig, make_config, make_settings
from rollwise.errors import ConfigError
from rollwise.files import list_checkpoints
from rollwise.records import RunFolder
from rollwise.tasks import read_problems


def test_what_is_in_the_folder_and_the_summary_is_of_the_responses(whole):
    files = {str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()}
    assert files == {
        *("config.json", "summary.json", "checksums.txt", "report.html"),
        "problems/running-sums.parquet",
        *(f"responses/running-sums/part-0000{i}.parquet" for i in range(3)),
    }
    rows = pq.read_table(whole / "responses").to_pylist()
    assert len(rows) == 12 * 4
    assert {row["index"] for row in rows} == {0, 1, 2, 3}
    problems = read_problems(whole / "problems/running-sums.parquet").problems
    answers = {problem.key: problem.answer for problem in problems}
    for row in rows:
        assert row["reward"] == (row["response"].rpartition("=")[2].strip() == answers[row["key"]])
    figures = summary_of(whole)["benchmarks"]["running-sums"]
    mean = sum(row["reward"] for row in rows) / len(rows)
    assert figures["avg@4"]["value"] == pytest.approx(mean)
    assert figures["avg@4"]["low"] < mean < figures["avg@4"]["high"]
    assert figures["tokens"] == sum(row["tokens"] for row in rows) / len(rows)
    names = [
        f"{kind}@{k}" for kind in ("pass", "maj", "all_correct", "all_wrong") for k in (1, 2, 4)
    ]
    assert [name for name in names if name not in figures] == []
    assert {int(level) for level in figures["level"]} == set(range(2, 11))
    assert (figures["problems"], figures["lost_draws"], figures["grader_failures"]) == (12, 0, 0)
    assert not {"turns", "ends"} & figures.keys()  # of single responses


def test_episodes_are_played(tmp_path, say):
    whole = tmp_path / "whole"
    tool = ["--benchmarks", "tool-sums", *TINY, "--engine.max_new_tokens", "24"]
    say("evaluate", whole, *tool)
    config = make_settings(EvaluateConfig, RunFolder(whole).read_config())
    found = config.model.path, config.episode.type, config.grading.type
    assert found == ("tool-sums", "calculator", "exact")
    rows = pq.read_table(whole / "responses").to_pylist()
    assert max(row["turns"] for row in rows) > 1
    for row in rows:
        said = row["response"].split("\n")[::2]  # the calculator says every second line
        assert len(said) == row["turns"]
    figures = summary_of(whole)["benchmarks"]["tool-sums"]
    assert figures["turns"] == sum(row["turns"] for row in rows) / len(rows)
    assert sum(figures["ends"].values()) == len(rows) == 12 * 4


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("write_part", "to resume: rollwise evaluate --output {run} --resume"),
        ("build", "stopped before anything was written"),
    ],
)
def test_ctrl_c_says_how_to_resume(tmp_path, monkeypatch, say, function, said):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"rollwise.commands.drawing.{function}", interrupt)
    shown = say("evaluate", tmp_path / "run", *TINY, code=130)
    assert said.format(run=tmp_path / "run").replace(" ", "") in shown.replace(" ", "")


# Two models.


def test_two_models_are_compared_on_the_same_problems(tmp_path, whole, say, make_checkpoint):
    options = ["--model.path", make_checkpoint, "--engine.max_new_tokens", "16", *TINY[2:]]
    options += ["--benchmarks", "running-sums", "--data.problems", "9", "--baseline", whole]
    assert "on the same 9 problems" in say("evaluate", tmp_path / "other", *options)
    found = summary_of(tmp_path / "other")["baseline"]
    assert found["folder"] == str(whole)
    comparison = found["benchmarks"]["running-sums"]
    assert comparison["problems"] == 9
    figures = summary_of(tmp_path / "other")["benchmarks"]["running-sums"]
    difference = figures["avg@4"]["value"] - comparison["figures"]["avg@4"]["value"]
    assert comparison["avg"]["value"] == pytest.approx(difference)  # of the same 9 problems
    assert -1 <= comparison["avg"]["low"] <= comparison["avg"]["value"] <= 1
    assert "Difference to" in (tmp_path / "other/report.html").read_text()


@pytest.fixture(params=["0", "2"], ids=["all weights", "adapters"])
def make_checkpoint(request, tmp_path):
    """A run of `rollwise train` that has one checkpoint."""
    folder = tmp_path / "trained"
    options = "--steps 1 --prompts.batch_size 2 --evaluation.problems 2 --evaluation.samples 1 "
    options += f"--data.problems 8 --engine.max_new_tokens 16 --model.lora_rank {request.param}"
    assert main(["train", "--output", str(folder), *options.split()]) == 0
    return folder


def test_a_baseline_without_the_same_problems_is_refused_before_anything_is_drawn(
    tmp_path, whole, say
):
    other = write_rows(tmp_path / "other.jsonl", [{"problem": "1+1?", "answer": "2"}])
    options = ["--benchmarks", f"running-sums={other}", "--baseline", whole, "--grading.type"]
    shown = say("evaluate", tmp_path / "run", *options, "exact", code=2)
    assert "shares no problem with this one; it has the benchmarks running-sums" in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "there is no run in"),
        (make_config(), "is the folder of another command, not an evaluation"),
        (make_settings(EvaluateConfig), "other is not finished"),
    ],
)
def test_a_folder_without_a_whole_evaluation_is_no_baseline(tmp_path, say, config, said):
    other = RunFolder(tmp_path / "other")
    other.path.mkdir()
    if config is not None:
        other.write_config(asdict(config))
    assert said in say("evaluate", tmp_path / "run", "--baseline", other.path, code=2)
    assert not (tmp_path / "run").exists()


def test_its_report_can_be_written_again_if_it_is_finished(whole, tmp_path, capsys):
    shutil.copytree(whole, again := tmp_path / "evaluated")
    page = again / "report.html"
    first = page.read_text(encoding="utf-8").partition("<main>")[2]
    page.unlink()
    (prepared := tmp_path / "prepared").mkdir()
    RunFolder(prepared).write_config(asdict(make_settings(PrepareConfig)))
    assert main(["report", str(tmp_path)]) == 0
    assert page.read_text(encoding="utf-8").endswith(first)
    (again / "summary.json").unlink()
    (again / "checksums.txt").unlink()
    assert main(["report", *map(str, (again, prepared, whole))]) == 2
    found = capsys.readouterr()
    assert found.out.count("report: ") == 2
    assert "evaluated is not finished" in found.err
    assert "is of `rollwise prepare`, which has no report.html" in found.err


def test_a_run_of_the_built_in_model_is_evaluated_on_its_own_task(
    make_checkpoint, tmp_path, monkeypatch
):
    """Also a run that began with a run's model; the hub is not asked."""
    run, second = RunFolder(make_checkpoint), RunFolder(tmp_path / "second")
    [checkpoint] = list_checkpoints(run.checkpoints)
    second.path.mkdir()
    second.write_config(asdict(make_config({"model": {"path": str(run.path)}})))
    for path in (run.path, checkpoint, checkpoint / "model", second.path):
        config = make_settings(EvaluateConfig, {"model": {"path": str(path)}})
        assert config.benchmarks == ["running-sums"]
        assert (config.grading.type, config.model.cpu_threads) == ("exact", 1)
        with pytest.raises(ConfigError, match=r"reads only sums .* `--benchmarks running-sums`"):
            make_settings(EvaluateConfig, asdict(config), {"benchmarks": ["aime24"]})
    monkeypatch.chdir(run.path)  # names on the hub are not paths from here
    other = make_settings(EvaluateConfig, {"model": {"path": "Qwen/Qwen3-8B"}})
    assert (other.benchmarks, other.engine.max_new_tokens) == (["math500"], 1024)


def test_a_finished_evaluation_needs_no_model_and_is_not_of_another_command(
    whole, say, monkeypatch
):
    monkeypatch.setattr("rollwise.models.saved.load_model", None)
    say("evaluate", whole, "--resume")
    assert "is the folder of another command" in say("train", whole, "--resume", code=2)


# Known responses, and hostile ones.


def test_the_figures_of_known_responses(tmp_path, reader, speak, say):
    """Each problem gets its answer twice, a wrong one once, and one draw is lost; the last none."""
    answers = ("60", r"\frac{1}{2}", r"\left( 3, \frac{\pi}{2} \right)", "p - q", "12", "x+1", "4")
    rows = [{"problem": f"Problem {at}?", "answer": each} for at, each in enumerate(answers)]
    file = write_rows(tmp_path / "known.jsonl", rows)
    problems = read_problems(file).problems
    right = {p.key: rf"\boxed{{{p.answer}}}" for p in problems}
    texts = {key: [text, r"\boxed{-987}", text, None] for key, text in right.items()}
    speak(texts | {problems[-1].key: [None]})
    options = ["--model.path", reader, "--benchmarks", f"math500={file}", "--grading.workers", "1"]
    options += ["--samples", "4", "--portion", "4"]
    say("evaluate", tmp_path / "run", *options)
    figures = summary_of(tmp_path / "run")["benchmarks"]["math500"]
    assert figures["problems"] == 6
    saved = read_problems(tmp_path / "run/problems/math500.parquet").problems
    assert all(p.messages[-1]["content"].endswith(r"within \boxed{}.") for p in saved)
    assert figures["avg@4"]["value"] == pytest.approx(2 / 3)
    assert figures["pass@2"]["value"] == 1.0
    assert figures["maj@2"]["value"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert figures["all_correct@2"]["value"] == pytest.approx(1 / 3)
    assert "pass@4" not in figures  # nothing has four responses
    assert figures["lost_draws"] == 6 + 4


def test_what_is_left_out_is_said_counted_and_shown(tmp_path, reader, speak, say):
    rows = [{"problem": f"{n}+1?", "answer": str(n + 1)} for n in range(9)]
    rows += [{"problem": f"{n}+2?", "answer": None} for n in range(5)]
    rows += [rows[0], rows[1] | {"answer": "7"}, {"problem": " ", "answer": "1"}]
    rows += [{"problem": "long" * 500, "answer": "1"}]
    file, other = write_rows(tmp_path / "a.jsonl", rows), write_rows(tmp_path / "b.jsonl", rows[:1])
    [lost] = read_problems(other).problems
    speak(lambda key: [None if key == lost.key else "=1"])
    options = ["--model.path", reader, "--benchmarks", file, "--samples", 1, "--data.problems", 9]
    options += ["--grading.type", "exact"]
    for _ in range(2):
        shown = say("evaluate", tmp_path / "run", *options)
        assert "left out" in shown and "duplicate" in shown
        figures = summary_of(tmp_path / "run")["benchmarks"]["a"]
        counts = {"read": 18, "missing_answers": 5, "duplicates": 2, "conflicting_answers": 1}
        counts |= {"empty_problems": 1, "too_long": 0, "beyond_limit": 1, "undrawn": 1}
        assert figures.items() >= {**counts, "problems": 8}.items()
        page = (tmp_path / "run/report.html").read_text()
        assert "Problems that were left out" in page and "no response could be drawn" in page
    say("evaluate", tmp_path / "all", *options, "--data.problems", 20)
    assert summary_of(tmp_path / "all")["benchmarks"]["a"]["too_long"] == 1


def test_hostile_names_and_responses_do_no_harm(tmp_path, speak, say):
    evil = "<script>alert(1)</script>[bold red]\x1b[31m`"
    rows = [
        {"problem": f"{i}+1?", "answer": "2", "subject": evil if i else "plain"} for i in range(2)
    ]
    file = write_rows(tmp_path / "a<b>[red].jsonl", rows)
    speak(lambda key: [f"{evil}=2", f"{evil}=\ud7ff"])
    options = ["--benchmarks", file, "--benchmarks", f"again={file}", "--samples", 2]
    shown = say("evaluate", tmp_path / "run", *options, "--grading.type", "exact")
    assert summary_of(tmp_path / "run")["average"]["problems"] == 4
    page = (tmp_path / "run/report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "<b>" not in page
    assert "\x1b" not in page and "\x1b" not in shown
    assert "[bold red]" in shown


# What is refused.


@pytest.mark.parametrize(
    ("holds", "given", "said"),
    [
        ("checkpoints", "", "has no checkpoint yet"),
        ("checkpoints/global_step_9/actor", "", "a verl checkpoint must be merged into a model"),
        ("responses", "responses", "no model in the folder {run}/responses; a folder needs config"),
    ],
)
def test_a_folder_without_a_model_is_refused_with_what_to_give(tmp_path, say, holds, given, said):
    run = tmp_path / "run"
    (run / holds).mkdir(parents=True)
    RunFolder(run).write_config({"seed": 0})
    shown = say("evaluate", tmp_path / "e", "--model.path", run / given, code=2)
    assert said.format(run=run) in shown and shown.count("model.path") == 1
