"""Trackers get a run's numbers, and say what is missing."""

import sys

import pytest

from rollwise.errors import RunError
from rollwise.records import Trackers

CONFIG = {"seed": 3, "model": {"path": "running-sums"}}


def test_tensorboard_gets_every_number_at_its_step(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trackers = Trackers(["tensorboard"])
    trackers.start(tmp_path, CONFIG)
    for step in (1, 2):
        heldout = {"avg@8": {"value": step / 8}}
        line = {"step": step, "reward": step / 4, "heldout": heldout, "draws_by_round": [8.0]}
        ledger = {"draws": {"trained": step, "surplus": 0}, "tokens": {"trained": 10 * step}}
        trackers.log(line | {"ledger": ledger})
    trackers.close()
    written = {path.parent for path in tmp_path.rglob("events.out.tfevents.*")}
    read = {}
    for place in written:
        events = loader.EventAccumulator(str(place)).Reload()
        for tag in events.Tags()["scalars"]:
            read[tag] = [(event.step, event.value) for event in events.Scalars(tag)]
    assert read["reward"] == [(1, 0.25), (2, 0.5)]
    assert read["heldout/avg@8/value"] == [(1, 0.125), (2, 0.25)]
    assert read["ledger/draws/trained"] == [(1, 1.0), (2, 2.0)]
    assert read["ledger/draws/surplus"] == [(1, 0.0), (2, 0.0)]
    assert read["ledger/tokens/trained"] == [(1, 10.0), (2, 20.0)]
    assert read["draws_by_round/1"] == [(1, 8.0), (2, 8.0)]
    assert read["step"] == [(1, 1.0), (2, 2.0)]


def test_an_unknown_tracker_is_named_with_those_there_are():
    pytest.importorskip("accelerate")
    with pytest.raises(RunError) as caught:
        Trackers(["tensorbord"])
    assert "records.trackers: 'tensorbord'" in str(caught.value)
    assert "installed are: " in str(caught.value)


def test_trackers_without_their_package_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(RunError, match=r'pip install "rollwise\[trackers\]"'):
        Trackers(["tensorboard"])
