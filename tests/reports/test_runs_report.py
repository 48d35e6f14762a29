"""The report of a folder of runs, and that of a comparison, which links its runs."""

import os
from urllib.parse import unquote

import numpy as np
import pytest
from made_runs import make_run, read

from rollwise.cli import main
from rollwise.config import make_config
from rollwise.errors import RunError
from rollwise.reports import write_reports
from rollwise.reports.methods import write_comparison_report
from rollwise.statistics.curves import COSTS, Curve, compare_methods

STRANGE = "<b>&'%41 x"


@pytest.fixture
def runs(tmp_path):
    """Two runs that differ in a setting, and the copy that a checkpoint holds of one."""
    folder = tmp_path / "runs"
    make_run(folder / "a" / STRANGE, steps=4, learner={"learning_rate": 1e-4})
    make_run(folder / "b", steps=3, learner={"learning_rate": 3e-4})
    make_run(folder / "b/checkpoints/step-000003/run")
    return folder


def test_the_runs_of_a_folder_are_in_one_table_linked_to_their_reports(runs, capsys):
    assert main(["report", str(runs)]) == 0
    page = read(runs)
    text = " ".join(page.text.split())
    assert "runs 2" in text
    assert f"a/{STRANGE} stopped 2 0.250 0.625 0.625 4 2,000 4.5" in text
    assert "0.0001" in text and "0.0003" in text and "step-000003" not in text
    links = [unquote(place) for place in page.loads if not place.startswith("#")]
    assert links == [f"a/{STRANGE}/report.html", "b/report.html"]
    assert all((runs / link).exists() for link in links)
    assert "b" not in page.tags


def test_curves_of_several_runs_are_drawn_together_each_over_its_own_steps(runs):
    page = read(write_reports(runs).parent)
    lines = page.charts["heldout"]["lines"]
    assert [each["label"] for each in lines] == [f"a/{STRANGE}", "b"]
    assert [page.data["grids"][each["grid"]]["steps"] for each in lines] == [[0, 4], [0, 3]]
    assert lines[0]["colour"] != lines[1]["colour"]
    assert {"reward", "entropy"} <= page.charts.keys()


def test_a_run_that_cannot_be_read_is_named_and_left_out(runs):
    for content, why in (("", "holds no metrics"), ('{"step": 3}\n', "elapsed")):
        (runs / "b/metrics.jsonl").write_text(content)
        text = read(write_reports(runs).parent).text
        assert "Left out is b, which has no report: " in text and why in text
    (runs / "a" / STRANGE / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="none of the runs in"):
        write_reports(runs)


def test_the_report_of_a_run_is_written_again_only_if_its_metrics_are_newer(runs):
    write_reports(runs)
    report = runs / "b/report.html"
    os.utime(report, (2e9, 2e9))
    write_reports(runs)
    assert report.stat().st_mtime == 2e9
    os.utime(report, (1e9, 1e9))
    write_reports(runs)
    assert report.stat().st_mtime > 1e9


def compared(path, ends, run=None):
    """Write the report of methods with these accuracies at the end, seed by seed."""

    def curve(end):
        return Curve(np.array([0.1, end]), {name: np.array([0.0, 9.0]) for name in COSTS}, run)

    methods = {name: dict(enumerate(map(curve, found))) for name, found in ends.items()}
    comparison = compare_methods(methods, next(iter(ends)), None, {})
    configs = {
        name: make_config({"learner": {"learning_rate": 1e-4 * (at + 1)}}).model_dump(mode="json")
        for at, name in enumerate(ends)
    }
    tables = [("Accuracy", ["method", "mean"], [[name, "0.5\n[0.4, 0.6]"] for name in ends])]
    path.mkdir()
    said = ["other: better."]
    return write_comparison_report(path, comparison, said, tables, configs)


def test_a_comparison_says_its_verdict_first_links_its_runs_and_has_the_settings(tmp_path):
    run = make_run(tmp_path / "runs/other/seed-0")
    ends = {"base": [0.4], "other": [0.8]}
    page = read(compared(tmp_path / "compared", ends, run).parent)
    text = " ".join(page.text.split())
    assert text.index("other: better.") < text.index("Runs")
    assert page.loads == ["../runs/other/seed-0/report.html"] * 2
    assert (run / "report.html").exists()
    assert "learner.learning_rate 0.0001 0.0002" in text


def test_an_interval_over_two_seeds_is_not_drawn(tmp_path):
    for seeds in (2, 3):
        ends = {"base": [0.4, 0.5, 0.6][:seeds], "other": [0.8, 0.7, 0.6][:seeds]}
        page = read(compared(tmp_path / str(seeds), ends).parent)
        means = [each for each in page.charts["accuracy-tokens"]["lines"] if "style" not in each]
        assert [each["label"] for each in means] == ["base", "other"]
        assert all(("low" in each) == (seeds > 2) for each in means)
