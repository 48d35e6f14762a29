"""The report of a run that goes on: how often it is written, and what it says of the run."""

import sys

import pytest
from forked import Command
from made_runs import make_run, read, step_line

from rollwise.cli import main
from rollwise.errors import RunError
from rollwise.files import LOCK, locked
from rollwise.records import RunFolder
from rollwise.reports import LiveReport, write_report

UNDER_WAY = "The run is under way. This page reloads itself every 30 s"


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def said(path):
    return read(path).text


@pytest.mark.parametrize(("takes", "between"), [(0.1, 30.0), (2.0, 100.0)])
def test_it_is_written_at_once_and_then_seldom(tmp_path, monkeypatch, takes, between):
    """After 30 s, or 50 times what the last one took; never of a run that did not begin."""
    clock, written = Clock(), []

    def write(path, **how):
        written.append(clock())
        clock.now += takes

    monkeypatch.setattr("rollwise.reports.report.write_report", write)
    with LiveReport(tmp_path, 30.0, clock):
        pass
    assert written == []
    live = LiveReport(tmp_path, 30.0, clock)
    for wait, count in ((0.0, 1), (0.0, 1), (between - 0.5, 1), (1.0, 2)):
        clock.now += wait
        live.step_ended()
        assert len(written) == count
    assert written[0] == 100.0


def test_a_report_that_cannot_be_written_is_logged(tmp_path, monkeypatch, caplog):
    def full(path, **how):
        raise RunError("the disk is full")

    monkeypatch.setattr("rollwise.reports.report.write_report", full)
    with pytest.raises(KeyboardInterrupt), LiveReport(tmp_path, 30.0) as live:
        live.step_ended()
        raise KeyboardInterrupt
    assert caplog.text.count("the report is not up to date: the disk is full") == 2


def test_the_page_reloads_itself_during_the_run(tmp_path):
    path = make_run(tmp_path / "run")
    clock = Clock()
    live = LiveReport(path, 30.0, clock)
    live.step_ended()
    page = read(path)
    assert UNDER_WAY in page.text and "Written at 20" in page.text
    assert page.data["reload"] == 30 and "location.reload()" in page.scripts[1]
    clock.now += 31
    RunFolder(path).log(step_line(4))
    live.step_ended()
    assert "4 steps" in said(path)

    live.__exit__(KeyboardInterrupt)
    page = read(path)
    assert "The run stopped before its end." in page.text
    assert page.data["reload"] is None and "location.reload" not in page.scripts[1]
    RunFolder(path).write_summary({"steps": 4})
    write_report(path)
    assert "The run has ended." in said(path)


@pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone")
def test_a_report_by_hand_says_whether_another_process_writes_to_the_folder(tmp_path):
    path = make_run(tmp_path / "run")
    with locked(path):
        assert Command("report", str(path), shown=tmp_path / "shown").end()[0] == 0
        assert "The run is under way." in said(path)
    (path / LOCK).write_text("process 1, long gone")
    assert main(["report", str(path)]) == 0
    assert "The run stopped before its end." in said(path)
