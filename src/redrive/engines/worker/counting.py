"""What a worker has done so far, counted where it happens."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from threading import local
from typing import TYPE_CHECKING, Final

from redrive.engines.figures import Figures
from redrive.engines.words import LaneName
from redrive.metrics import Buckets

if TYPE_CHECKING:
    from redrive.processing.outcomes.report import Outcome
    from redrive.processing.processor import PartitionProcessor

TIME_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Bounds of times, in seconds; what took longer is in the bucket after the last."""


class Times:
    """How long something took, in buckets. May be used from many threads.

    Each thread counts by itself: a lock that all share would cost more than the counting.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._mine = _Mine(self._parts)

    def add(self, seconds: float, count: int = 1) -> None:
        """Note one, or of several that took as long."""
        part = self._mine.part
        part.counts[bisect_left(TIME_BUCKETS, seconds)] += count
        part.total += seconds * count

    def add_all(self, seconds: Sequence[float]) -> None:
        """Note several."""
        part = self._mine.part
        counts = part.counts
        for each in seconds:
            counts[bisect_left(TIME_BUCKETS, each)] += 1
        part.total += sum(seconds)

    def buckets(self) -> Buckets:
        """How many in each bucket, and the sum."""
        total = sum(part.total for part in list(self._parts))
        return Buckets(TIME_BUCKETS, self._counts(), total)

    def _counts(self) -> list[int]:
        found = [0] * (len(TIME_BUCKETS) + 1)
        for part in list(self._parts):
            found = [sum(pair) for pair in zip(found, part.counts, strict=True)]
        return found


class _Part:
    """What one thread has counted."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(TIME_BUCKETS) + 1)
        self.total = 0.0


class _Mine(local):
    """The part of whichever thread asks; made when it first does."""

    def __init__(self, parts: list[_Part]) -> None:
        self.part = _Part()
        parts.append(self.part)


class Counting:
    """Counts outcomes, rebalances, commits and times."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.handling = Times()
        self.committing = Times()
        self.rebalances: Counter[str] = Counter()
        self.commit_failures = 0
        self.hung = 0
        """Handlers that did not end in time, and whose threads are lost."""

    def ended(self, processor: PartitionProcessor, outcome: Outcome | int) -> None:
        """Count an outcome that is durable, or so many records that are done."""
        kind, count = ("done", outcome) if isinstance(outcome, int) else (outcome.kind, 1)
        lane: LaneName = "main" if processor.delay is None else "retry"
        if count:
            self.figures.count(lane, processor.partition.topic, kind, count)
        if not isinstance(outcome, int):
            processor.scope.causes.outcome(outcome)
