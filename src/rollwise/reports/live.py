"""The report of a run that goes on."""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rollwise.errors import RunError
from rollwise.reports import report

SHARE = 0.02
"""The most of a run's time that its reports take."""

log = logging.getLogger(__name__)


class LiveReport:
    """Writes the report of a run while the run goes on, seldom enough to cost next to nothing.

    At the end of its block the report says that the run does not go on, if it said that it does,
    unless `leave` was called.

    Args:
        path: The run's folder.
        every: Seconds between two reports, at least.
        clock: Returns seconds.
    """

    def __init__(
        self, path: Path, every: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._every, self._clock = path, every, clock
        self._due = -math.inf

    def step_ended(self) -> None:
        """Write the report if it is due."""
        began = self._clock()
        if began >= self._due:
            self._write(goes_on=True, reload=self._every)
            ended = self._clock()
            self._due = ended + max(self._every, (ended - began) / SHARE)

    def leave(self) -> None:
        """Leave the last report, of a run that has ended, to another writer."""
        self._due = -math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._due > -math.inf:
            self._write()

    def _write(self, **how: Any) -> None:
        """Write the report; that it cannot be written does not end the run."""
        try:
            report.write_report(self._path, **how)
        except RunError as error:
            log.warning("the report is not up to date: %s", error)
