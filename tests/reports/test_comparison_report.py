"""The report of a comparison, which links those of its runs; and those of all runs of a folder."""

import os
from dataclasses import asdict

import numpy as np
from made_runs import make_run, read

from rollwise.cli import main
from rollwise.config import make_config
from rollwise.reports.methods import write_comparison_report
from rollwise.statistics.curves import COSTS, Curve, compare_methods


def compared(path, ends, run=None):
    """Write the report of methods with these accuracies at the end, seed by seed."""

    def curve(end):
        return Curve(np.array([0.1, end]), {name: np.array([0.0, 9.0]) for name in COSTS}, run)

    methods = {name: dict(enumerate(map(curve, found))) for name, found in ends.items()}
    comparison = compare_methods(methods, next(iter(ends)), None, {})
    configs = {
        name: asdict(make_config({"learner": {"learning_rate": 1e-4 * (at + 1)}}))
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
    assert "learner.learning_rate 0.0001 0.0002" in text
    report = run / "report.html"
    for number, (written, again) in enumerate(((2e9, False), (1e9, True))):  # before its metrics
        os.utime(report, (written, written))
        compared(tmp_path / f"again {number}", ends, run)
        assert (report.stat().st_mtime > written) is again


def test_each_run_of_a_folder_gets_its_report(tmp_path, capsys):
    runs = [make_run(tmp_path / name) for name in ("a/<b>", "b")]
    make_run(tmp_path / "b/checkpoints/step-000003/run")
    assert main(["report", str(tmp_path)]) == 0
    pages = sorted(tmp_path.rglob("report.html"))
    assert pages == [run / "report.html" for run in runs]
    shown = "".join(capsys.readouterr().out.split())
    assert all(str(page) in shown for page in pages)


def test_an_interval_over_two_seeds_is_not_drawn(tmp_path):
    for seeds in (2, 3):
        ends = {"base": [0.4, 0.5, 0.6][:seeds], "other": [0.8, 0.7, 0.6][:seeds]}
        page = read(compared(tmp_path / str(seeds), ends).parent)
        means = [each for each in page.charts["accuracy-tokens"]["lines"] if "style" not in each]
        assert [each["label"] for each in means] == ["base", "other"]
        assert all(("low" in each) == (seeds > 2) for each in means)
