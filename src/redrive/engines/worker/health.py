"""Health of a worker: `/live` and `/ready`."""

from __future__ import annotations

from typing import Protocol

from redrive.engines.words import LaneName
from redrive.serving import Health


class Run(Protocol):
    """A worker, as far as its health goes."""

    def not_live(self) -> str: ...

    @property
    def ready(self) -> bool: ...

    @property
    def stopping(self) -> bool: ...

    def status(self, lane: LaneName) -> dict[str, object]: ...


def checks(worker: Run) -> dict[str, Health]:
    """What to ask, by path."""
    return {"/live": worker.not_live, "/ready": lambda: not_ready(worker)}


def not_ready(worker: Run) -> str:
    """Why nothing would be handled now; empty: it would be."""
    dead = worker.not_live()
    if dead:
        return dead
    if worker.stopping:
        return "it is being stopped"
    if not worker.ready:
        return "the group has assigned it no partitions yet"
    trouble = worker.status("main").get("trouble")
    return f"it waits: {trouble}" if trouble else ""
