"""Files and folders written whole or not at all."""

import errno
import os
from contextlib import contextmanager

import numpy as np
import pytest
import safetensors.numpy

from rollwise.errors import RunError
from rollwise.files import LOCK, locked, write_text, written_whole


def fill(folder, **contents):
    folder.mkdir(parents=True)
    for name, text in contents.items():
        (folder / name).write_text(text)


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture(params=["file", "folder"])
def kept(request, tmp_path):
    """Something that holds `old` before, and a function that writes `new` in its way."""
    path = tmp_path / "kept"
    if request.param == "file":
        path.write_text("old")
        return path, lambda partial: partial.write_text("new"), path.read_text
    fill(path, a="old", b="gone once it is replaced")
    return path, lambda partial: fill(partial, a="new"), (path / "a").read_text


def test_a_file_is_written_with_the_folders_above_it(tmp_path):
    path = tmp_path / "deep" / "down" / "file"
    write_text(path, "Σ\n")
    assert path.read_bytes() == "Σ\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_what_was_there_is_replaced_as_a_whole(kept):
    path, write_new, read = kept
    fill(path.with_name(".kept.partial"), rest="of an earlier attempt, which was killed")
    with written_whole(path) as partial:
        write_new(partial)
        assert read() == "old"
    assert read() == "new"
    assert list(path.parent.iterdir()) == [path]
    assert path.is_file() or contents(path) == {"a": "new"}


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(1)])
def test_an_error_of_the_block_passes_and_leaves_what_was_there(kept, error):
    path, write_new, read = kept
    with pytest.raises(type(error)) as caught, written_whole(path) as partial:
        write_new(partial)
        raise error
    assert caught.value is error
    assert read() == "old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("call", [1, 2], ids=["step aside", "step in"])
def test_a_folder_survives_being_interrupted_while_it_is_replaced(tmp_path, monkeypatch, call):
    fill(tmp_path / "folder", a="old")
    replace, calls = os.replace, []

    def interrupted(source, target):
        calls.append(target)
        if len(calls) == call:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("rollwise.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "folder") as partial:
        fill(partial, a="new")
    assert contents(tmp_path / "folder") == {"a": "old"}
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


@contextmanager
def little_room():
    """The system refuses files of more than 1,000 bytes, as it would on a full disk.

    A limit of the process, so that no disk has to be filled; Python ignores its signal (SIGXFSZ),
    and the write fails with EFBIG. It holds for as little as can be, since it also holds for the
    file that the tests' own output may go to.
    """
    resource = pytest.importorskip("resource", reason="needs POSIX's limits of a process")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(5000)),
        lambda path: safetensors.numpy.save_file({"a": np.zeros(5000)}, path),
    ],
    ids=["python", "safetensors"],
)
def test_a_write_that_the_system_cuts_off_leaves_what_was_there(tmp_path, write):
    path = tmp_path / "file"
    write_text(path, "old")
    with little_room(), pytest.raises(RunError) as caught, written_whole(path) as partial:
        write(partial)
    assert f"could not write {path}: " in str(caught.value)
    assert "too large" in str(caught.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_leaves_nothing_behind(tmp_path):
    with locked(tmp_path / "runs" / "new"):
        assert f"process {os.getpid()} on " in (tmp_path / "runs" / "new" / LOCK).read_text()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / LOCK).write_text("process 1 on another machine, long gone")
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    with locked(tmp_path / "runs" / "new"):
        (tmp_path / "runs" / "new" / "config.json").write_text("{}")
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "new", "config.json"]


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("rollwise.files.fcntl.lockf", refuse)
    with locked(tmp_path):
        pass
    assert f"{tmp_path}: no lock" in caplog.text


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "file", "file/below"])
def test_a_place_where_nothing_can_be_written_is_named(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="cannot write to the folder"), locked(tmp_path / name):
        pass
    with pytest.raises(RunError, match="could not write"):
        write_text(tmp_path / "file" / "below", "x")
    assert (tmp_path / "file").read_text() == "mine"
