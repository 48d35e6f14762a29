"""The processes that train the runs of a comparison: how they are watched, and how they stop."""

import multiprocessing
import signal
import time

import pytest

from rollwise.commands import compare_runs
from rollwise.commands.compare_runs import PlannedRun, Records, train_missing
from rollwise.errors import ModelError

pytestmark = pytest.mark.usefixtures("forked")


def hears_once(path, settings):
    """Take the first SIGTERM as a run does; another one ends this process."""
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    path.mkdir()
    if settings.get("fails"):
        raise ModelError("it fails")
    if settings.get("stops"):
        return False
    while True:
        time.sleep(600)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Begin training runs that never end, unless their settings say so, two at a time."""
    monkeypatch.setattr(compare_runs, "_train", hears_once)
    monkeypatch.setattr(compare_runs, "SECONDS_BETWEEN_LOOKS", 0.1)

    def begin(*settings):
        runs = [PlannedRun(f"{i}", {"steps": 1} | given) for i, given in enumerate(settings)]
        return train_missing(runs, Records(tmp_path), 2)

    yield begin
    assert not multiprocessing.active_children()


def test_runs_stop_where_a_signal_ends_who_watches_them(train):
    """Ctrl-C between two looks raises in the command, not in what trains."""
    training = train({}, {})
    assert [next(training), next(training)] == [0, 0]
    training.close()


@pytest.mark.parametrize(
    ("ends", "error"), [({"stops": 1}, KeyboardInterrupt), ({"fails": 1}, ModelError)]
)
def test_where_one_run_stops_or_fails_the_others_stop_and_none_begins(tmp_path, train, ends, error):
    with pytest.raises(error):
        list(train(ends, {}, {}, {}))
    assert {path.name for path in tmp_path.iterdir()} <= {"0", "1"}
