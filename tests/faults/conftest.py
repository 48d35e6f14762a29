"""The fixtures of the fault suite, and the table at its end."""

import contextlib
import functools
import io
import itertools
import logging
import os
import random
import shutil

import pytest
import torch
from trials import SEED, TALLY, TIMES, Trial, processor_seconds

from rollwise.cli import main
from rollwise.commands import compare_runs

torch.set_num_threads(1)


@pytest.fixture
def chance(request):
    """Random numbers of this test alone, from the seed."""
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture
def folders(tmp_path):
    """Folders for trials; with the next one, the one before goes."""

    def each():
        for number in itertools.count():
            yield (folder := tmp_path / str(number))
            shutil.rmtree(folder)

    return each()


def pytest_report_header() -> str:
    return f"faults: seed {SEED}, {TIMES} times each"


def pytest_terminal_summary(terminalreporter) -> None:
    if TALLY:
        terminalreporter.write_sep("=", f"faults (seed {SEED})")
        for fault, tried in sorted(TALLY.items()):
            terminalreporter.write_line(f"{fault:<62} tried {tried:>4}")


@pytest.fixture(scope="session", autouse=True)
def cheap(tmp_path_factory):
    """Make a try as cheap as can be, for there are thousands.

    Processes of runs are forked, reports, which take longer than the runs, are left out, and this
    process has loaded and compiled what the forked ones need.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_runs, "START", "fork")
        patch.setattr("rollwise.commands.train.write_report", lambda path: path / "report.html")
        patch.setattr("rollwise.commands.train.LiveReport.step_ended", lambda report: None)
        for name in ("train", "evaluate"):
            trial = Trial(name, tmp_path_factory.mktemp("warm"))
            with contextlib.redirect_stdout(io.StringIO()):
                assert main(trial.words) == 0
        logging.getLogger().handlers.clear()
        yield


@pytest.fixture(scope="session")
def wanted(tmp_path_factory):
    """What commands come to undisturbed, and how many seconds of processors they take.

    Or with settings by which their plug-ins do nothing wrong, or get no reward where they would.
    """
    os.environ.setdefault("MISBEHAVIOUR", "0")

    @functools.cache
    def of(name, **settings):
        trial = Trial(name, tmp_path_factory.mktemp("wanted"), **settings)
        before = processor_seconds()
        trial.finish()
        return trial.result(), processor_seconds() - before, trial

    return of
