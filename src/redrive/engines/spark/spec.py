"""Spec: what the driver tells planner and tasks; it travels pickled, never as Spark options.

Options are shown in Spark's UI, and there are passwords in the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from redrive.config import Settings
from redrive.engines.words import From, LaneName, Until
from redrive.logs import LogOptions
from redrive.tuning import RETRY_HORIZON


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One run of one app on Spark."""

    target: str
    """The app, as module:name."""
    folder: str
    """Where its module was imported from, in case executors can see it too."""
    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)
    """What the app's modules were made of on the driver: sources.py."""
    run: str
    """Tells this run from others of the same app, and which of them is the newest: marks.py."""
    scratch: str
    """A folder of the driver's: stop requests, and what the planners saw."""
    slots: int
    until: Until = "stopped"
    start_from: From = "earliest"
    batch_deadline: int = 5000
    max_records: int = 500_000
    commit_every: int = 1000
    horizon: int = RETRY_HORIZON
    """How far the retry lane plans ahead; where tasks cannot hold records, not at all."""
    logs: LogOptions = field(default_factory=LogOptions)
    """How the Python processes of Spark log."""
    keep_every: int = 3_600_000
    """An offset that has not changed for so many milliseconds is committed again."""
    old_mark: str = ""
    """The mark of a run of an older version that is over."""
    inbox_ttl: int | None = None
    """How long ids are remembered, in milliseconds; None: for ever."""

    def tasks(self, lane: LaneName, slots: int = 0) -> int:
        """How many tasks a lane may have at once: the retry lane a quarter of the slots."""
        slots = slots or self.slots
        retry = max(1, slots // 4)
        return retry if lane == "retry" else max(1, slots - retry)

    @property
    def stop_file(self) -> Path:
        """Once it exists, nothing new is planned, and tasks end at their next commit."""
        return Path(self.scratch) / "stop"

    def batch_file(self, lane: LaneName) -> Path:
        """What became of the last batch of a lane, for its planner."""
        return Path(self.scratch) / f"batch-{lane}.json"

    @property
    def book_file(self) -> Path:
        """What is known of guards, for the planners of both lanes and the driver."""
        return Path(self.scratch) / "guards"

    def outage_file(self, lane: LaneName) -> Path:
        """Once it exists, a task has seen an outage: those of the lane's batch end, too."""
        return Path(self.scratch) / f"outage-{lane}"

    def status_file(self, lane: LaneName) -> Path:
        """What the planner of a lane saw last."""
        return Path(self.scratch) / f"status-{lane}.json"
