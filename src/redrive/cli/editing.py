"""Editing the value of one letter, in the editor of whoever asks for it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from redrive.dead.fixing import editable
from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter


class NewValue(NamedTuple):
    """What takes the place of one letter's value."""

    letter: Letter
    value: bytes
    topic_id: str
    """Of the dead topic that it was read from."""

    def keep(self) -> None:
        """Keep it in a file, and say how to go on with that: nobody edits a value twice."""
        folder = Path(tempfile.mkdtemp(prefix="redrive-"))
        file = folder / f"letter{'.json' if editable(self.letter)[1] else '.txt'}"
        file.touch(mode=0o600)  # it may be anybody's data
        file.write_bytes(self.value + _end(self.letter))
        typer.echo(
            f"the edited value is kept in {file}: replay it with"
            f" --at '{self.letter.place}' --value {file} --yes",
            err=True,
        )


def read_value(file: Path, letter: Letter) -> bytes:
    """The value that a file has for a letter."""
    try:
        value = file.read_bytes().removesuffix(_end(letter))
    except OSError as error:
        raise ConfigurationError(f"--value {file} cannot be read: {error.strerror}") from None
    if value == letter.record.value:
        raise ConfigurationError(
            f"--value {file}: it is the value that {letter.place} has: nothing is replayed"
        )
    return value


def _end(letter: Letter) -> bytes:
    """What a file has behind a value: editors end it with a line feed, values mostly do not."""
    return b"" if (letter.record.value or b"").endswith(b"\n") else b"\n"


@contextmanager
def kept_on_error(edited_value: NewValue | None) -> Iterator[None]:
    """Keep what somebody has edited if what they did it for fails."""
    try:
        yield
    except BaseException:
        if edited_value is not None:
            edited_value.keep()
        raise


def can_ask() -> bool:
    """Whether somebody is there who can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def edited(letter: Letter, app: App | None) -> bytes:
    """The value as the editor has left it; a sentence if it was not changed, or cannot be."""
    if app is not None and app.masked:
        raise ConfigurationError(
            f"{letter.place}: the app masks fields of its values, so they are not opened in an"
            " editor; use --fix"
        )
    text, is_json = editable(letter)
    found = _in_editor(text, ".json" if is_json else ".txt")
    if found.rstrip("\n") == text.rstrip("\n"):
        raise ConfigurationError(
            f"{letter.place} was not changed in the editor: nothing is replayed"
        )
    # Editors end a file with a line feed, values mostly do not.
    return (found if text.endswith("\n") else found.removesuffix("\n")).encode()


def _in_editor(text: str, suffix: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        file = Path(folder) / f"letter{suffix}"
        file.touch(mode=0o600)  # it may be anybody's data
        file.write_bytes(text.encode())  # as text, its ends of lines might be changed
        try:
            command = shlex.split(editor)
            ended = subprocess.run([*(command or [editor]), str(file)], check=False)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the editor {editor} cannot be started ({error}): set EDITOR"
            ) from None
        if ended.returncode:
            raise ConfigurationError(
                f"the editor {editor} ended with {ended.returncode}: nothing is replayed"
            )
        try:
            return file.read_bytes().decode()
        except (OSError, ValueError):
            raise ConfigurationError(
                f"the editor {editor} left no text: nothing is replayed"
            ) from None
