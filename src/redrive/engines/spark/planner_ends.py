"""Planners whose Python process ended or never started: how often a run starts another one.

A planner knows nothing that Kafka does not know, so that it can always be replaced. Spark gives a
Python process ten seconds to start, whatever the machine is doing: one that is late is no sign of
anything but a busy driver, and is tried for longer than one that dies.
"""

from __future__ import annotations

from redrive.engines.words import LaneName
from redrive.tuning import MOST_PLANNER_DEATHS, PLANNER_DEATHS_WITHIN, PLANNER_START_PATIENCE


class PlannerEnds:
    """How the planners of one run ended."""

    def __init__(self) -> None:
        self._deaths: dict[LaneName, list[float]] = {}
        self._late_since: dict[LaneName, float] = {}

    def died(self, lane: LaneName, now: float) -> str:
        """Why this death ends the run; nothing, if another planner is started."""
        recent = [each for each in self._deaths.get(lane, ()) if each > now - PLANNER_DEATHS_WITHIN]
        self._deaths[lane] = [*recent, now]
        return "its planner dies again and again" if len(recent) >= MOST_PLANNER_DEATHS else ""

    def was_late(self, lane: LaneName, now: float, heard: float) -> str:
        """The same for one that did not start in time; `heard`: when the lane last had a plan."""
        since = self._late_since.get(lane, now)
        if heard > since:
            since = now
        self._late_since[lane] = since
        if now - since < PLANNER_START_PATIENCE:
            return ""
        return (
            f"for {now - since:.0f} s no Python process for its planner has started within Spark's"
            " ten seconds; the driver is short of CPU, or its Python is slow to import pyspark"
        )
