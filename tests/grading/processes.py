"""What has become of a process."""

import time
from pathlib import Path

PATIENCE = 60.0  # seconds for what must come; nothing waits that long unless it is broken


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def wait_until_gone(pid):
    deadline = time.monotonic() + PATIENCE
    while state_of(pid) not in (None, "Z"):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.05)
