"""Figures: what a run has done so far."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from redrive.engines.words import Lane

BUCKETS: Final = (0, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Bounds of lateness, in milliseconds; what is later is in the bucket after the last."""
_NEWS: Final = 1000


@dataclass(frozen=True)
class Batch:
    """What one batch did."""

    lane: Lane
    number: int | None
    """None: what happened within some time, on an engine without batches."""
    counts: dict[str, int]
    seconds: float = 0.0
    trouble: str = ""
    failed: bool = False

    @property
    def records(self) -> int:
        """How many records had an outcome."""
        return sum(self.counts.values())


@dataclass
class LaneFigures:
    """What one lane has done so far."""

    counts: Counter[str] = field(default_factory=Counter)
    """By outcome: done, park, bury, discard, hop, skip, duplicate."""
    batches: int = 0
    failed_batches: int = 0
    last_trouble: str = ""


@dataclass(frozen=True)
class Lateness:
    """How late parked records were, all of them, in buckets."""

    counts: tuple[int, ...]
    """One for each bound, and one for what is later."""
    total: int
    """The sum, in milliseconds."""


class Figures:
    """What a run has done so far. May be used from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.lanes: dict[Lane, LaneFigures] = {"main": LaneFigures(), "retry": LaneFigures()}
        self.lateness: deque[int] = deque(maxlen=100_000)
        self.early = 0
        self.news: deque[Batch] = deque(maxlen=_NEWS)
        """The last batches, for whoever tells of them: taken from the left."""
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._late = 0

    def add(
        self, lane: Lane, reports: list[str], *, number: int = 0, seconds: float = 0.0
    ) -> list[dict[str, Any]]:
        """Take the reports of a batch; gives them read."""
        read: list[dict[str, Any]] = [json.loads(report) for report in reports]
        counts: Counter[str] = Counter()
        trouble = ""
        for report in read:
            counts.update({kind: count for kind, count in report["counts"].items() if count})
            trouble = report["trouble"] or trouble
        with self._lock:
            figures = self.lanes[lane]
            figures.batches += 1
            figures.counts.update(counts)
            figures.last_trouble = trouble or figures.last_trouble
            for report in read:
                self._add_lateness(report["lateness"])
        self.news.append(Batch(lane, number, dict(counts), seconds, trouble))
        return read

    def count(self, lane: Lane, kind: str, records: int) -> None:
        """Take note of outcomes that belong to no batch; of each kind from one thread at a time."""
        self.lanes[lane].counts[kind] += records

    def late(self, sample: list[int]) -> None:
        """Take note of how late parked records were, in milliseconds."""
        with self._lock:
            self._add_lateness(sample)

    def failed(self, lane: Lane, trouble: str, *, number: int = 0, seconds: float = 0.0) -> None:
        """Take note of a batch that failed as a whole."""
        with self._lock:
            self.lanes[lane].failed_batches += 1
            self.lanes[lane].last_trouble = trouble
        self.news.append(Batch(lane, number, {}, seconds, trouble, failed=True))

    def total(self, kind: str) -> int:
        """How many records had that outcome, in both lanes."""
        with self._lock:
            return sum(figures.counts[kind] for figures in self.lanes.values())

    def counts(self, lane: Lane) -> dict[str, int]:
        """How many records of a lane had which outcome."""
        with self._lock:
            return dict(self.lanes[lane].counts)

    def batches(self, lane: Lane) -> int:
        """How many batches of a lane have ended, in whatever way."""
        with self._lock:
            return self.lanes[lane].batches + self.lanes[lane].failed_batches

    def lateness_percentile(self, share: float) -> int | None:
        """The lateness that this share of parked records did not exceed, in milliseconds."""
        with self._lock:
            sample = sorted(self.lateness)
        return sample[min(len(sample) - 1, int(share * len(sample)))] if sample else None

    def lateness_so_far(self) -> Lateness:
        """How late parked records were, all of them."""
        with self._lock:
            return Lateness(tuple(self._buckets), self._late)

    def _add_lateness(self, sample: list[int]) -> None:
        self.lateness.extend(sample)
        for late in sample:
            self.early += late < 0
            self._late += late
            self._buckets[bisect_left(BUCKETS, late)] += 1
