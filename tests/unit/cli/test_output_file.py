"""The file of an export: whole, or as it was."""

from __future__ import annotations

import os
from threading import Thread

import pytest

from redrive import ConfigurationError
from redrive.cli.output_file import output_file


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "letters.json"
    made.write_text("old")
    return made


def written(path, text="new"):
    with output_file(path) as file:
        file.write(text)


def fail(path, error):
    with output_file(path) as file:
        file.write("half of it")
        raise error


def test_the_old_file_stays_until_all_is_written(path):
    with output_file(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_command_that_fails_leaves_everything_as_it_was(path, error, is_there):
    if not is_there:
        path.unlink()
    with pytest.raises(error):
        fail(path, error)
    assert [each.read_text() for each in path.parent.iterdir()] == (["old"] if is_there else [])


def test_whoever_could_not_read_the_old_file_cannot_read_the_new_one(path):
    path.chmod(0o600)
    with output_file(path):
        modes = {each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    assert modes == {0o600}
    path.chmod(0o666)  # whatever the umask
    written(path)
    assert path.stat().st_mode & 0o777 == 0o666


def test_a_new_file_can_be_read_by_whom_the_umask_lets(path, tmp_path):
    other = tmp_path / "other.json"
    before = os.umask(0o027)
    try:
        written(other)
    finally:
        os.umask(before)
    assert (other.read_text(), other.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_link_stays_a_link(path, tmp_path):
    link = tmp_path / "latest"
    link.symlink_to(path)
    written(link)
    assert (link.is_symlink(), path.read_text()) == (True, "new")


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = Thread(target=written, args=(pipe,))
    writing.start()
    read = pipe.read_text()
    writing.join()
    assert (read, pipe.is_fifo()) == ("new", True)


@pytest.mark.parametrize("name", ["missing/letters.json", "."])
def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path, name):
    with pytest.raises(ConfigurationError, match=r"cannot be written: .*; name a file in a folder"):
        written(tmp_path / name)


def test_without_a_file_it_is_standard_output(capsys):
    written(None)
    assert capsys.readouterr().out == "new"
