"""Locks: names that one process of this machine holds for as long as it lives.

The operating system lets go of them, whatever happens to the process.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO


def folder_of(what: str) -> Path:
    """Where the locks of this user's processes are."""
    return Path(tempfile.gettempdir()) / f"redrive-{what}-{os.getuid()}"


def hold_first(folder: Path, names: Iterable[str]) -> tuple[str, IO[str]] | None:
    """The first name that nobody holds, held until its file is closed; None: all are taken."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        file = (folder / f"{name}.lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        return name, file
    return None
