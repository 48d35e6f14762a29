"""The head of a report: what was run, when and where."""

from made_runs import make_run, read

from rollwise.config import make_config
from rollwise.records import RunFolder
from rollwise.records.folder import describe_start
from rollwise.reports import write_report
from rollwise.reports.facts import run_facts


def test_the_head_says_what_came_of_it_and_when_and_where_it_ran(tmp_path):
    path = make_run(tmp_path / "run")
    folder = RunFolder(path)
    started = describe_start("CPU (2 cores)")
    folder.write_config(folder.read_config(), started | {"commit": "abc123 + changes"})
    folder.write_config(folder.read_config())  # as resuming does
    text = " ".join(read(write_report(path).parent).text.split())
    assert "run held-out avg@8 0.250 [0.150, 0.350] → 0.625 [0.525, 0.725] · held-out" in text
    assert f"date {started['date']} host {started['host']} device CPU (2 cores)" in text
    assert "commit abc123 + changes" in text


def test_the_method_of_a_default_run_is_single_responses():
    facts = run_facts(make_config({}).model_dump(mode="json"), {}, {})
    assert facts["method"] == (
        "256 prompts by worth · single responses · objective linear · baseline belief"
    )
