"""Figures: what a run has done so far."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from threading import Lock
from time import time
from typing import Any, Final

from redrive.decisions import REASONS
from redrive.engines.words import LaneName
from redrive.processing.outcomes.causes import Seen
from redrive.tuning import NEWS_KEPT

BUCKETS: Final = (0, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Bucket bounds of lateness, in milliseconds; anything later is in the bucket after the last."""
OTHER: Final = "other"


@dataclass(frozen=True)
class Batch:
    """What one batch did."""

    lane: LaneName
    number: int | None
    """None on an engine without batches: then it covers an interval."""
    counts: dict[str, int]
    seconds: float = 0.0
    trouble: str = ""
    failed: bool = False

    @property
    def records(self) -> int:
        """How many records got an outcome."""
        return sum(self.counts.values())


@dataclass
class LaneFigures:
    """What one lane has done so far."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By topic and outcome: done, park, bury, discard, hop, skip, duplicate."""
    moved: float | None = None
    """When a record last got an outcome, in seconds since 1970."""
    ended: float | None = None
    """When a batch last ended."""
    batches: int = 0
    failed_batches: int = 0
    last_trouble: str = ""


@dataclass(frozen=True)
class Lateness:
    """How late parked records were, all of them, in buckets."""

    counts: tuple[int, ...]
    """One for each bound, and one for anything later."""
    total: int
    """The sum, in milliseconds."""


def drained(lateness: deque[int]) -> list[int]:
    """What was noted so far, and is not to be counted again; others may add to it meanwhile."""
    return [lateness.popleft() for _ in range(len(lateness))]


class Figures:
    """What a run has done so far. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.lanes: dict[LaneName, LaneFigures] = {"main": LaneFigures(), "retry": LaneFigures()}
        self.lateness: deque[int] = deque(maxlen=100_000)
        self.early = 0
        self.news: deque[Batch] = deque(maxlen=NEWS_KEPT)
        """The last batches, for whoever tells of them: taken from the left."""
        self._dead: Counter[tuple[str, str]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._late = 0

    def add(
        self, lane: LaneName, reports: list[str], *, number: int = 0, seconds: float = 0.0
    ) -> list[dict[str, Any]]:
        """Add the reports of a batch; returns them parsed.

        What was read in delay topics counts for the retry lane, whichever lane planned it.
        """
        read: list[dict[str, Any]] = [json.loads(report) for report in reports]
        counts: Counter[str] = Counter()
        trouble = ""
        with self._lock:
            for report in read:
                found = Counter({kind: n for kind, n in report["counts"].items() if n})
                counts += found
                of: LaneName = lane if report.get("delay") is None else "retry"
                for kind, records in found.items():
                    self.count(of, report.get("topic", ""), kind, records)
                trouble = report["trouble"] or trouble
                self._add_lateness(report["lateness"])
            figures = self.lanes[lane]
            figures.batches += 1
            figures.ended = time()
            figures.last_trouble = trouble or figures.last_trouble
        self.news.append(Batch(lane, number, dict(counts), seconds, trouble))
        return read

    def count(self, lane: LaneName, topic: str, kind: str, records: int) -> None:
        """Count outcomes; for each topic and kind, from one thread at a time."""
        figures = self.lanes[lane]
        figures.counts[topic, kind] += records
        figures.moved = time()

    def count_dead(self, causes: Iterable[Seen], topics: Collection[str]) -> None:
        """Count why records were buried; unknown topics and reasons share one label."""
        with self._lock:
            for seen in causes:
                if seen.cause.kind != "bury":
                    continue
                topic, reason = seen.cause.topic, seen.cause.fingerprint.reason
                known = topic if topic in topics else OTHER, reason if reason in REASONS else OTHER
                self._dead[known] += seen.count

    def dead(self) -> dict[tuple[str, str], int]:
        """How many records were buried, by source topic and reason."""
        with self._lock:
            return dict(self._dead)

    def late(self, sample: list[int]) -> None:
        """Count how late parked records were, in milliseconds."""
        with self._lock:
            self._add_lateness(sample)

    def failed(
        self, lane: LaneName, trouble: str, *, number: int = 0, seconds: float = 0.0
    ) -> None:
        """Count a batch that failed as a whole."""
        with self._lock:
            self.lanes[lane].failed_batches += 1
            self.lanes[lane].ended = time()
            self.lanes[lane].last_trouble = trouble
        self.news.append(Batch(lane, number, {}, seconds, trouble, failed=True))

    def total(self, kind: str) -> int:
        """How many records got that outcome, in both lanes."""
        with self._lock:
            return sum(self._counts(lane)[kind] for lane in self.lanes)

    def counts(self, lane: LaneName) -> dict[str, int]:
        """How many records of a lane got which outcome."""
        with self._lock:
            return dict(self._counts(lane))

    def counts_by_topic(self, lane: LaneName) -> dict[tuple[str, str], int]:
        """How many records of a lane got which outcome, by topic."""
        return dict(self.lanes[lane].counts)

    def batches(self, lane: LaneName) -> int:
        """How many batches of a lane have finished, one way or another."""
        with self._lock:
            return self.lanes[lane].batches + self.lanes[lane].failed_batches

    def lateness_percentile(self, share: float) -> int | None:
        """The lateness that this fraction of parked records did not exceed, in milliseconds."""
        with self._lock:
            sample = sorted(self.lateness)
        return sample[min(len(sample) - 1, int(share * len(sample)))] if sample else None

    def lateness_so_far(self) -> Lateness:
        """How late parked records were, all of them."""
        with self._lock:
            return Lateness(tuple(self._buckets), self._late)

    def _counts(self, lane: LaneName) -> Counter[str]:
        counts: Counter[str] = Counter()
        for (_, kind), records in self.counts_by_topic(lane).items():
            counts[kind] += records
        return counts

    def _add_lateness(self, sample: list[int]) -> None:
        self.lateness.extend(sample)
        for late in sample:
            self.early += late < 0
            self._late += late
            self._buckets[bisect_left(BUCKETS, late)] += 1
