"""An engine's processes end with the process that started them, however that ends."""

import os
import subprocess
import sys

import pytest
from waiting import wait_until

from rollwise.engines.reaper import marked

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc")

TRAINER = """
import subprocess, sys
from rollwise.engines import reaper as module
module.GRACE = 0.5
reaper = module.Reaper()
with reaper.marking():
    command = [sys.executable, "-S", "-c", sys.argv[1]]
    engine = subprocess.Popen(command, start_new_session=True)
other = subprocess.Popen(["sleep", "600"])
print(reaper._mark, engine.pid, other.pid, flush=True)
sys.stdin.read()
"""

STUBBORN = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"])
time.sleep(600)
"""


def test_a_killed_process_takes_its_engine_along_and_nothing_else():
    """The engine has a child, and does not heed SIGTERM."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    mark, engine, other = trainer.stdout.readline().decode().split()
    try:
        wait_until(lambda: len(marked(mark)) == 2)
        assert int(engine) in marked(mark)
        trainer.kill()
        trainer.wait()
        wait_until(lambda: not marked(mark))
        os.kill(int(other), 0)  # still there
    finally:
        os.kill(int(other), 9)
        trainer.stdin.close()
        trainer.stdout.close()
