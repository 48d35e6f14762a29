"""Metrics sent to TensorBoard, Weights & Biases and others during a run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rollwise.errors import RunError
from rollwise.records.metrics import Row, flatten, numbers


class Trackers:
    """Sends metrics to TensorBoard, Weights & Biases and others, by their names in `accelerate`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._kinds = [_tracker_kind(name) for name in names]
        self._trackers: list[Any] = []

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Start the trackers in a run's folder; they show its settings beside the metrics."""
        settings = {k: str(v) for k, v in flatten(config, "/").items()}
        for kind in self._kinds:
            options = {"logging_dir": folder} if kind.requires_logging_directory else {}
            tracker = kind("rollwise", **options)
            tracker.start()
            tracker.store_init_configuration(settings)
            self._trackers.append(tracker)

    def log(self, metrics: Row) -> None:
        """Send the numbers among `metrics`."""
        for tracker in self._trackers:
            tracker.log(numbers(metrics), step=metrics["step"])

    def close(self) -> None:
        """Finish the trackers."""
        for tracker in self._trackers:
            tracker.finish()


def _tracker_kind(name: str) -> Any:
    try:
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
    except ImportError:
        raise RunError('records.trackers needs: pip install "rollwise[trackers]"') from None
    available = [str(tracker) for tracker in get_available_trackers()]
    if name not in available:
        raise RunError(
            f"records.trackers: {name!r} is not known or not installed; installed are: "
            f"{', '.join(available) or 'none'}"
        )
    PartialState()
    return LOGGER_TYPE_TO_CLASS[name]
