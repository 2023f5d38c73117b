"""Health of a run on Spark, as the driver sees it: `/live` and `/ready`.

The driver plans and collects; handlers run elsewhere. So these say whether the lanes go on, never
how a handler is: a batch may last as long as its longest handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Protocol

from redrive.engines.words import LaneName
from redrive.serving import Health
from redrive.tuning import PLANNER_SILENCE


class Query(Protocol):
    """The query of a lane."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 -- as Spark's queries


class Run(Protocol):
    """A run, as far as its health goes; a handle is one."""

    @property
    def queries(self) -> Mapping[LaneName, Query]: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def trigger(self) -> float:
        """Seconds between the starts of two batches, at least."""
        ...

    def status(self, lane: LaneName) -> Mapping[str, Any]: ...

    def heard(self, lane: LaneName) -> float:
        """When the planner of a lane last planned, in seconds since 1970."""
        ...

    def batch_seconds(self, lane: LaneName) -> float | None:
        """For how long a lane's batch has been under way; None: there is none."""
        ...


def checks(run: Run) -> dict[str, Health]:
    """What to ask, by path."""
    return {"/live": lambda: not_live(run), "/ready": lambda: not_ready(run)}


def not_live(run: Run) -> str:
    """Why it should be restarted; empty if it should not."""
    if run.stopping:
        return ""
    for lane, query in list(run.queries.items()):
        if not query.isActive:
            return f"the query of the {lane} lane has ended"
        silence = time() - run.heard(lane)
        if silence > PLANNER_SILENCE + run.trigger and run.batch_seconds(lane) is None:
            return f"the planner of the {lane} lane has been silent for {silence:.0f} s"
    return ""


def not_ready(run: Run) -> str:
    """Why nothing would be handled now; empty: it would be."""
    if run.stopping:
        return "it is being stopped"
    for lane in list(run.queries):
        status = run.status(lane)
        if status.get("trouble"):
            return f"the {lane} lane waits: {status['trouble']}"
        if not status.get("planned"):
            return f"the {lane} lane has not planned yet"
    return not_live(run)
