"""Membership: the name by which a worker is known in its group, over restarts.

A static member that comes back by its name gets its partitions at once, and nobody else is
disturbed. Two processes must never use one name at the same time, so names are numbers that are
held by a lock for as long as the process lives: the operating system lets go of it, whatever
happens to the process.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

_MOST: Final = 10_000
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")


class Membership:
    """A name that no other process of this machine uses for the app as long as this one lives."""

    def __init__(self, app: str, given: str | None = None, folder: Path | None = None) -> None:
        self._file: IO[str] | None = None
        if given is not None:
            self.instance = given
            return
        folder = folder or Path(tempfile.gettempdir()) / f"redrive-workers-{os.getuid()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(_MOST):
            file = (folder / f"{app}-{number}.lock").open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self._file = file
            self.instance = f"{_UNFIT.sub('-', socket.gethostname())}-{number}"
            return
        raise OSError(f"no free name for a worker in {folder}")

    def close(self) -> None:
        """Let another process have the name."""
        if self._file is not None:
            self._file.close()
            self._file = None
