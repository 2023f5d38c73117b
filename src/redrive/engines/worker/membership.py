"""Membership: the name by which a worker is known in its group, over restarts.

A static member that comes back by its name gets its partitions at once, and nobody else is
disturbed. Two processes must never use one name at the same time, so names are numbers that are
held by a lock for as long as the process lives.
"""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from redrive.engines.worker.locks import folder_of, hold_first
from redrive.tuning import MOST_INSTANCES

_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")


class Membership:
    """A name that no other process of this machine uses for the app as long as this one lives."""

    def __init__(
        self,
        app: str,
        given: str | None = None,
        folder: Path | None = None,
        *,
        dynamic: bool = False,
    ) -> None:
        self._held: ExitStack | None = None
        self.instance: str | None = given
        """None: without a name, as a member that leaves the group when it stops."""
        if given is not None or dynamic:
            return
        folder = folder or folder_of("workers")
        held = hold_first(folder, (f"{app}-{number}" for number in range(MOST_INSTANCES)))
        if held is None:
            raise OSError(f"no free name for a worker in {folder}")
        name, self._held = held
        number = name.removeprefix(f"{app}-")
        self.instance = f"{_UNFIT.sub('-', socket.gethostname())}-{number}"

    def close(self) -> None:
        """Let another process have the name."""
        if self._held is not None:
            self._held.close()
            self._held = None
