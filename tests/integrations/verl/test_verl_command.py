"""`rollwise verl` around verl's process, which is a fake here: verl is not needed."""

import json
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
time.sleep(60)
"""


@pytest.fixture
def nothing_is_ignored():
    """Handle signals as in a terminal; a process in the background may ignore some of them."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_fewer_problems_than_a_step_has_prompts_are_refused_before_verl_starts(tmp_path, capsys):
    problems = tmp_path / "few.jsonl"
    rows = [{"problem": f"{i}+1?", "answer": str(i + 1)} for i in range(20)]
    problems.write_text("\n".join(map(json.dumps, rows)))
    given = ["--data.train", str(problems), "--prompts.batch_size", "32"]
    assert main(["verl", "--output", str(tmp_path / "run"), "--print", *given]) == 2
    assert "18 training problems, fewer than the 32 prompts of a step" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("nothing_is_ignored")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_verls_process_too(tmp_path, monkeypatch, capsys, number):
    noted = tmp_path / "pid"
    (tmp_path / "fake_verl.py").write_text(FAKE.format(str(noted)))
    monkeypatch.setattr(command, "MAIN", "fake_verl")
    monkeypatch.setattr(command, "unmet", lambda package: None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def send():
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.05)
        signal.pthread_kill(main_thread, number)

    main_thread = threading.get_ident()
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert main(["verl", "--output", str(tmp_path / "run"), "--steps", "1"]) == 128 + number
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
