"""Editing the value of one letter, in the editor of whoever asks for it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.dead.showing import plain_value
from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter


def edited(letter: Letter, app: App | None) -> bytes:
    """The value as the editor has left it; a sentence if it was not changed, or cannot be."""
    value = letter.record.value or b""
    if app is not None and app.masked:
        raise ConfigurationError(
            f"{letter.place}: the app masks fields of its values, so they are not opened in an"
            " editor; use --fix"
        )
    shown = plain_value(value)
    if shown.how == "hex":
        raise ConfigurationError(f"{letter.place} is not text: use --fix, which gets the bytes")
    text = shown.text if shown.how == "json" else value.decode()
    found = _in_editor(text, ".json" if shown.how == "json" else ".txt")
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
        file.write_text(text, encoding="utf-8")
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except OSError as error:
            raise ConfigurationError(
                f"the editor {editor} cannot be started ({error}): set EDITOR"
            ) from None
        if ended.returncode:
            raise ConfigurationError(
                f"the editor {editor} ended with {ended.returncode}: nothing is replayed"
            )
        return file.read_text(encoding="utf-8")
