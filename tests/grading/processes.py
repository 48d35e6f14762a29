"""Scripts in processes of their own, and what has become of a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from waiting import wait_until

import rollwise

PATIENCE = 60.0  # seconds for what must come; nothing waits that long unless it is broken


def start(text):
    """Start a script that can import rollwise and what lies here."""
    folders = [str(Path(rollwise.__file__).parents[1]), str(Path(__file__).parent)]
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and so would all that the tests start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def wait_until_gone(pid):
    wait_until(lambda: state_of(pid) in (None, "Z"), PATIENCE)
