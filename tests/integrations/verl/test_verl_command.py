"""`rollwise verl` around verl's process, which is a fake here: verl is not needed."""

import os
import signal
import threading
import time

import pytest
from row_files import write_rows

from rollwise.cli import main
from rollwise.integrations.verl import command

FAKE = """
import os, pathlib, time
pathlib.Path({!r}).write_text(str(os.getpid()))
time.sleep(60)
"""


def test_fewer_problems_than_a_step_has_prompts_are_refused_before_verl_starts(tmp_path, capsys):
    problems = tmp_path / "few.jsonl"
    write_rows(problems, [{"problem": f"{i}+1?", "answer": str(i + 1)} for i in range(20)])
    given = ["--data.train", str(problems), "--prompts.batch_size", "32"]
    assert main(["verl", "--output", str(tmp_path / "run"), "--print", *given]) == 2
    assert "18 training problems, fewer than the 32 prompts of a step" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_resumed_with_other_answers(tmp_path, capsys):
    problems, run = tmp_path / "sums.jsonl", tmp_path / "run"
    command = ["verl", "--output", str(run), "--print", "--data.train", str(problems)]
    command += ["--prompts.batch_size", "16", "--resume"]
    for answer, code in (("1", 0), ("2", 0), ("2", 0), ("3", 2)):
        write_rows(problems, [{"problem": f"{i}+1?", "answer": answer} for i in range(20)])
        assert main(command) == code
        if answer == "2":
            (run / "metrics.jsonl").touch()
    assert "train.parquet, with which the run was begun" in capsys.readouterr().err


def test_a_signal_ends_verls_process_too(tmp_path, monkeypatch):
    noted = tmp_path / "pid"
    (tmp_path / "fake_verl.py").write_text(FAKE.format(str(noted)))
    monkeypatch.setattr(command, "MAIN", "fake_verl")
    monkeypatch.setattr(command, "unmet", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def send():
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.05)
        signal.pthread_kill(main_thread, signal.SIGTERM)

    main_thread = threading.get_ident()
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert main(["verl", "--output", str(tmp_path / "run"), "--steps", "1"]) == 128 + signal.SIGTERM
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
