"""Figures: what a run has done so far."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from redrive.engines.spark.ranges import Lane


@dataclass
class LaneFigures:
    """What one lane has done so far."""

    counts: Counter[str] = field(default_factory=Counter)
    """By outcome: done, park, bury, discard, hop, skip."""
    batches: int = 0
    failed_batches: int = 0
    last_trouble: str = ""


class Figures:
    """What a run has done so far. May be used from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.lanes: dict[Lane, LaneFigures] = {"main": LaneFigures(), "retry": LaneFigures()}
        self.lateness: deque[int] = deque(maxlen=100_000)
        self.early = 0

    def add(self, lane: Lane, reports: list[str]) -> list[dict[str, Any]]:
        """Take the reports of a batch; gives them read."""
        read: list[dict[str, Any]] = [json.loads(report) for report in reports]
        with self._lock:
            figures = self.lanes[lane]
            figures.batches += 1
            for report in read:
                figures.counts.update(report["counts"])
                figures.last_trouble = report["trouble"] or figures.last_trouble
                self.lateness.extend(report["lateness"])
                self.early += sum(late < 0 for late in report["lateness"])
        return read

    def failed(self, lane: Lane, trouble: str) -> None:
        """Take note of a batch that failed as a whole."""
        with self._lock:
            self.lanes[lane].failed_batches += 1
            self.lanes[lane].last_trouble = trouble

    def total(self, kind: str) -> int:
        """How many records had that outcome, in both lanes."""
        with self._lock:
            return sum(figures.counts[kind] for figures in self.lanes.values())

    def lateness_percentile(self, share: float) -> int | None:
        """The lateness that this share of parked records did not exceed, in milliseconds."""
        with self._lock:
            sample = sorted(self.lateness)
        return sample[min(len(sample) - 1, int(share * len(sample)))] if sample else None
