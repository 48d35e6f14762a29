"""`rollwise evaluate` and `prepare`, killed and resumed: the files are those of one run."""

import shutil

import pyarrow.parquet as pq
import pytest
from drawn import TINY, contents_of

from rollwise.commands import drawing
from rollwise.errors import ConfigError
from rollwise.records import refuse_changes

FIRST_LAST = {
    "evaluate": ("responses/running-sums/part-00001.parquet", "summary.json"),
    "prepare": ("responses/part-00001.parquet", "prepared.parquet"),
}
"""A file of the first portion, and one that is written at the end."""


@pytest.mark.parametrize("command", FIRST_LAST)
def test_what_is_killed_ends_with_the_same_files(tmp_path, kill_after, say, command, monkeypatch):
    monkeypatch.setattr(drawing, "describe_start", lambda device: {"device": device})
    say(command, tmp_path / "whole", *TINY)
    for portions, how in [(0, TINY), (1, ["--resume"]), (2, TINY)]:
        folder = tmp_path / f"after {portions}"
        kill_after(portions, command, folder, *TINY)
        assert not (folder / FIRST_LAST[command][1]).exists()
        say(command, folder, *how)
        assert contents_of(folder) == contents_of(tmp_path / "whole")


@pytest.mark.parametrize("how", [TINY, ["--resume"]], ids=["the same command", "resume"])
@pytest.mark.parametrize("command", FIRST_LAST)
def test_settings_that_were_edited_since_are_noticed(tmp_path, kill_after, say, command, how):
    """`config.json` alone would have what was drawn pass for another model's."""
    folder = tmp_path / "run"
    kill_after(1, command, folder, *TINY)
    config = folder / "config.json"
    recorded = config.read_text()
    config.write_text(recorded.replace('"temperature": 1.0', '"temperature": 0.5'))
    options = how if how == ["--resume"] else [*how, "--engine.temperature", "0.5"]
    shown = say(command, folder, *options, code=2)
    assert "config.json was modified since a command wrote it" in shown
    config.write_text(recorded)
    shown = say(command, folder, *how, "--engine.temperature", "0.5", code=2)
    assert "`engine.temperature` cannot change" in shown
    assert "has 1.0, and this command 0.5 (given, or by default)" in shown
    assert "give `--resume` alone" in shown
    before = {"data": {"environment_arguments": {"split": "hard"}}}
    with pytest.raises(ConfigError, match=r"`data.environment_arguments.split` .* command None"):
        refuse_changes(folder, before, {"data": {"environment_arguments": {}}}, ())
    say(command, folder, *how)


@pytest.mark.parametrize("command", FIRST_LAST)
def test_a_flipped_bit_in_a_reward_is_noticed(tmp_path, say, command):
    """Parquet itself would read another reward."""
    folder = tmp_path / "run"
    say(command, folder, *TINY)
    portion = folder / FIRST_LAST[command][0]
    rewards = pq.ParquetFile(portion).metadata.row_group(0).column(3)
    assert rewards.path_in_schema == "reward"
    content = bytearray(portion.read_bytes())
    content[rewards.data_page_offset + rewards.total_compressed_size - 30] ^= 1
    portion.write_bytes(content)
    shown = say(command, folder, *TINY, code=2)
    assert "part-00001.parquet" in shown.replace(" ", "")
    assert "delete it to have it recreated" in shown
    (folder / "checksums.txt").unlink()  # as if it had been stopped before its end
    assert "remove it to have them drawn again" in say(command, folder, *TINY, code=2)
    portion.unlink()
    say(command, folder, *TINY)


@pytest.mark.parametrize("command", FIRST_LAST)
def test_a_portion_of_other_problems_is_noticed(tmp_path, kill_after, say, command):
    folder = tmp_path / "run"
    kill_after(2, command, folder, *TINY)
    second = folder / FIRST_LAST[command][0]
    first = second.with_name("part-00000.parquet")
    first.write_bytes(second.read_bytes())
    assert f"{first} belongs to other problems" in say(command, folder, *TINY, code=2)


@pytest.mark.parametrize("command", FIRST_LAST)
def test_a_folder_that_is_removed_meanwhile_is_an_error(tmp_path, monkeypatch, say, command):
    folder, write = tmp_path / "run", drawing.write_part

    def remove_then_write(path, *content):
        if path.name == "part-00001.parquet":
            shutil.rmtree(folder)
        write(path, *content)

    monkeypatch.setattr(drawing, "write_part", remove_then_write)
    shown = say(command, folder, *TINY, code=2)
    assert "part-00000.parquet was removed while the command ran" in shown


def test_an_evaluation_that_is_not_whole_is_not_compared_with(tmp_path, say):
    say("evaluate", tmp_path / "before", *TINY)
    (tmp_path / "before" / FIRST_LAST["evaluate"][0]).unlink()
    shown = say("evaluate", tmp_path / "run", *TINY, "--baseline", tmp_path / "before", code=2)
    assert "part-00001.parquet is missing" in shown
