"""The file that a command writes: it is there when all of it is, and until then as it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from secrets import token_hex
from typing import TextIO

from redrive.errors import ConfigurationError


def output_file(path: Path | None) -> AbstractContextManager[TextIO]:
    """Where an export goes: a file, or standard output."""
    if path is None:
        return nullcontext(sys.stdout)
    # What a link points to is meant; a device or a pipe cannot be replaced.
    target = path.resolve()
    return _opened(path) if target.exists() and not target.is_file() else _replaced(path, target)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise _not_written(path, error) from error
    with file:
        yield file


@contextmanager
def _replaced(path: Path, target: Path) -> Iterator[TextIO]:
    """A file beside the one that is meant, and that one as soon as all is in it."""
    new = target.with_name(f".redrive-{token_hex(8)}.part")
    is_there = target.exists()
    # As many may read the new one as could read the old one, from the beginning.
    mode = target.stat().st_mode & 0o777 if is_there else 0o666
    try:
        if is_there:
            target.open("a").close()  # a file that may not be written may not be replaced either
        number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield file
        if is_there:
            new.chmod(mode)  # whatever the umask took off
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError) -> ConfigurationError:
    why = error.strerror or str(error)
    return ConfigurationError(
        f"--out {path} cannot be written: {why}; name a file in a folder that is there and that"
        " you may write to"
    )
