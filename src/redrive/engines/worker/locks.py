"""Locks: names that one process of this machine holds for as long as it lives.

The operating system lets go of them, whatever happens to the process. A lock of a file is lost when
somebody removes the file, as cleaners of temporary folders do after some days: the next process
makes another one of that name. So on Linux a name is also the address of a socket, without a file.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path


def folder_of(what: str) -> Path:
    """Where the locks of this user's processes are."""
    return Path(tempfile.gettempdir()) / f"redrive-{what}-{os.getuid()}"


def hold_first(folder: Path, names: Iterable[str]) -> tuple[str, ExitStack] | None:
    """The first name that nobody holds, held until it is closed; None: all are taken."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        with ExitStack() as held:
            file = held.enter_context((folder / f"{name}.lock").open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _hold_address(f"{folder.resolve()}/{name}", held)
            except OSError:
                continue
            return name, held.pop_all()
    return None


def _hold_address(name: str, held: ExitStack) -> None:
    if sys.platform == "linux":
        mine = held.enter_context(socket.socket(socket.AF_UNIX))
        # With a zero before it, it is a name and no file; addresses are short.
        mine.bind(b"\0redrive-" + sha256(name.encode()).hexdigest().encode())
