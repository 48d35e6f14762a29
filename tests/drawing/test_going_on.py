"""`rollwise evaluate` and `prepare`, killed and gone on with: the files are those of one go."""

import signal
import subprocess
import sys

import pytest

TINY = ["--data.problems", "12", "--samples", "4", "--portion", "4"]
FIRST_LAST = {
    "evaluate": ("responses/running-sums/part-00001.parquet", "summary.json"),
    "prepare": ("responses/part-00001.parquet", "prepared.parquet"),
}
"""A file of the first portion, and one that is written at the end."""


@pytest.mark.parametrize("command", FIRST_LAST)
def test_what_is_killed_ends_with_the_same_files(tmp_path, kill_after, contents_of, say, command):
    assert say(command, tmp_path / "whole", *TINY)[0] == 0
    for portions, how in [(0, TINY), (1, ["--resume"]), (2, TINY)]:
        folder = tmp_path / f"after {portions}"
        kill_after(portions)
        with pytest.raises(kill_after.error):
            say(command, folder, *TINY)
        assert not (folder / FIRST_LAST[command][1]).exists()
        assert say(command, folder, *how)[0] == 0
        assert contents_of(folder) == contents_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("command", FIRST_LAST)
def test_a_process_that_is_killed_goes_on_to_the_same_files(
    tmp_path, contents_of, wait_for_file, command
):
    options = ["--data.problems", "64", "--samples", "8", "--portion", "4"]

    def begin(folder):
        return subprocess.Popen(
            [sys.executable, "-m", "rollwise", command, "--output", str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    process = begin(tmp_path / "run")
    wait_for_file(tmp_path / "run" / FIRST_LAST[command][0], process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for folder in ("run", "whole"):
        process = begin(tmp_path / folder)
        shown, _ = process.communicate(timeout=300)
        assert process.returncode == 0, shown
    assert contents_of(tmp_path / "run") == contents_of(tmp_path / "whole")
