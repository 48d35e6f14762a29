"""Waiting for what must come."""

import time


def wait_until(condition, seconds=120.0):
    """Wait until a condition holds; as long as it may take only if something is broken."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
