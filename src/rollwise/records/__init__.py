"""What a run leaves: its folder with settings, metrics and responses, and what goes to trackers."""

from rollwise.records.fingerprints import refuse_changes
from rollwise.records.folder import RunFolder, typed_command
from rollwise.records.metrics import Row, flatten, numbers, read_lines
from rollwise.records.trackers import Trackers

__all__ = [
    "Row",
    "RunFolder",
    "Trackers",
    "flatten",
    "numbers",
    "read_lines",
    "refuse_changes",
    "typed_command",
]
