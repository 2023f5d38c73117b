"""Editing one letter: whatever the editor does, a sentence or the new value."""

from __future__ import annotations

import stat
import sys

import letters
import pytest

from redrive import App, ConfigurationError
from redrive.cli.editing import NewValue, edited, read_value
from redrive.dead.letter import Letter

PLACE = r"dead\[0\]@0"


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """An editor that runs this Python on the `file` it is given."""
    monkeypatch.delenv("VISUAL", raising=False)

    def make(code):
        script = tmp_path / "editor"
        head = f"#!{sys.executable}\nimport pathlib, sys\nfile = pathlib.Path(sys.argv[-1])\n"
        script.write_text(head + code)
        script.chmod(0o700)
        monkeypatch.setenv("EDITOR", str(script))

    return make


def letter(value):
    return Letter(letters.foreign("dead", value=value))


def test_the_new_value_is_what_was_saved(editor):
    editor("file.write_text(file.read_text().replace('old', 'new'))")
    assert edited(letter(b"old text"), None) == b"new text"
    assert edited(letter(b'{"a": "old"}'), None) == b'{\n  "a": "new"\n}'


def test_an_editor_that_is_closed_without_a_change(editor):
    editor("file.write_text(file.read_text() + '\\n')")  # as editors do at the end of a file
    for value in (b"text", b'{"a":1}', b"", None):
        with pytest.raises(ConfigurationError, match=f"{PLACE} was not changed in the editor"):
            edited(letter(value), None)


def test_an_editor_that_ends_with_an_error(editor):
    editor("file.write_text('half'); sys.exit(3)")
    with pytest.raises(ConfigurationError, match="ended with 3: nothing is replayed"):
        edited(letter(b"text"), None)


@pytest.mark.parametrize("command", ["no-such-editor --wait", "vi 'unfinished", " "])
def test_an_editor_that_does_not_exist(monkeypatch, command):
    monkeypatch.setenv("VISUAL", command)
    with pytest.raises(ConfigurationError, match=r"cannot be started .*: set EDITOR"):
        edited(letter(b"text"), None)


@pytest.mark.parametrize("code", ["file.unlink()", "file.write_bytes(b'\\xff')"])
def test_an_editor_that_leaves_no_text(editor, code):
    editor(code)
    with pytest.raises(ConfigurationError, match="left no text: nothing is replayed"):
        edited(letter(b"text"), None)


def test_what_is_not_touched_stays_as_it_was(editor):
    """Numbers of many digits, fields that come twice, and signs that are not shown."""
    editor("file.write_text(file.read_text().replace('old', 'new'))")
    for value in (
        '{"a":"old","n":0.1234567890123456789}',
        '{"a":"old","a":1}',
        '{"a":"old","b":"\x7f\u200f"}',
    ):
        changed = edited(letter(value.encode()), None).decode()
        assert changed.replace("\n", "").replace(" ", "") == value.replace("old", "new")


@pytest.mark.parametrize("ends", ["\r\n", "\r", "\x85", "\u2028"])
def test_ends_of_lines_are_not_changed_with_something_else(editor, ends):
    editor("file.write_bytes(file.read_bytes().replace(b'old', b'new'))")
    value = f"old{ends}line{ends}"
    assert edited(letter(value.encode()), None).decode() == value.replace("old", "new")


def test_nobody_else_can_read_it_and_nothing_is_left(editor, tmp_path):
    note = tmp_path / "note"
    editor(
        f"pathlib.Path({str(note)!r}).write_text(f'{{file.stat().st_mode}} {{file}}');"
        "file.write_text('new')"
    )
    edited(letter(b"old"), None)
    mode, _, file = note.read_text().partition(" ")
    assert stat.S_IMODE(int(mode)) == 0o600
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize("before", [b"old", b"old\n", b'{"a":1}\n', b"", None])
@pytest.mark.parametrize("after", [b"new", b"new\n", b"new\n\n", b'{"a": 2}'])
def test_what_is_kept_is_read_again_as_it_was(capsys, tmp_path, monkeypatch, before, after):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    NewValue(letter(before), after, "T1").keep()
    [file] = tmp_path.glob("redrive-*/letter.*")
    assert f"--at 'dead[0]@0' --value {file} --yes" in capsys.readouterr().err
    assert read_value(file, letter(before)) == after


def test_a_file_that_has_no_new_value_is_said(tmp_path):
    file = tmp_path / "value"
    with pytest.raises(ConfigurationError, match="value cannot be read: No such file"):
        read_value(file, letter(b"old"))
    file.write_bytes(b"old\n")
    with pytest.raises(ConfigurationError, match=f"it is the value that {PLACE} has"):
        read_value(file, letter(b"old"))


def test_what_cannot_be_edited_is_said(editor):
    with pytest.raises(ConfigurationError, match="is not text: use a fix"):
        edited(letter(b"\xff"), None)
    with pytest.raises(ConfigurationError, match="the app masks fields"):
        edited(letter(b"{}"), App("shop", masked=["card"]))
