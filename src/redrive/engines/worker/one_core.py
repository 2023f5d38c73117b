"""OneCore: keeps a worker whose handlers wait to one core.

Python runs one thread at a time, and a hundred threads that wait hand its lock to each other for
every record. From core to core that takes an interrupt, and whoever is woken finds the lock taken
again; within one core it takes next to nothing.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from redrive.engines.worker.locks import folder_of, hold_first
from redrive.errors import ConfigurationError

log: Final = logging.getLogger("redrive.worker")

_TASKS: Final = Path("/proc/self/task")


class OneCore:
    """A core that no other worker keeps to that sees the same locks, as long as this one lives.

    Which one is chance: workers in containers of their own do not see each other's locks.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if not hasattr(os, "sched_setaffinity"):
            raise ConfigurationError("--one-core: this system cannot keep a process to a core")
        self._before = os.sched_getaffinity(0)
        self._held: ExitStack | None = None
        self.core: int | None = None
        """Which one it is; None: all of them are taken."""
        cores = random.sample(sorted(self._before), len(self._before))
        held = hold_first(folder or folder_of("cores"), map(str, cores))
        if held is None:
            log.warning("--one-core: other workers have taken all cores; this one shares them")
            return
        name, self._held = held
        self.core = int(name)
        try:
            _keep_to({self.core})
        except OSError as error:
            self.close()
            told = f"--one-core: the system does not let a process keep to a core ({error})"
            raise ConfigurationError(told) from None
        log.info("pinned to core %d", self.core)

    def begin_thread(self) -> None:
        """Called by each thread that runs handlers: woken, it lets the one that runs go on.

        The one that runs has Python's lock: to be put aside by those that want it only costs time.
        """
        if self.core is None:
            return
        try:
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        except OSError as error:
            log.debug("threads stay as they are: %s", error)

    def close(self) -> None:
        """Run on all cores again, and let another worker have this one."""
        if self._held is None:
            return
        try:
            _keep_to(self._before)
        except OSError as error:
            log.warning("--one-core: the process stays on core %s: %s", self.core, error)
        self._held.close()
        self._held = None
        self.core = None


def _keep_to(cores: Collection[int]) -> None:
    """All threads that are there; those that they start later do as they do."""
    for task in _TASKS.iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # it has ended meanwhile
