"""`rollwise verl` around verl's process, which is a fake here: verl is not needed."""

import os
import signal
import threading
import time

import pytest

from rollwise.cli import main
from rollwise.integrations.verl import command

FAKE = """
import os, pathlib, time
pathlib.Path({!r}).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_verls_process_too(tmp_path, monkeypatch, capsys, number):
    noted = tmp_path / "pid"
    (tmp_path / "fake_verl.py").write_text(FAKE.format(str(noted)))
    monkeypatch.setattr(command, "MAIN", "fake_verl")
    monkeypatch.setattr(command, "missing", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def send():
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert main(["verl", "--output", str(tmp_path / "run"), "--steps", "1"]) == 128 + number
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
