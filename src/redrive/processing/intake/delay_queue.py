"""Records of a delay topic that wait here until they are due."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from operator import itemgetter

from redrive.processing.outcomes.report import Subject
from redrive.processing.work import Work


class DelayQueue:
    """A heap by due time.

    Records in one delay topic come in due order, but for the clocks of their writers: one whose
    writer's clock was ahead must not keep those behind it waiting.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Work | Subject]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, work: Work | Subject, due: int) -> None:
        """Have a record wait until it is due."""
        heappush(self._heap, (due, work.offset, work))

    def take(self, now: int) -> Iterator[tuple[Work | Subject, int]]:
        """The records that are due, with their due times."""
        while self._heap and self._heap[0][0] <= now:
            due, _, work = heappop(self._heap)
            yield work, due

    def take_all(self) -> list[tuple[Work | Subject, int]]:
        """All records, due or not, with their due times."""
        heap, self._heap = self._heap, []
        return [(work, due) for due, _, work in sorted(heap, key=itemgetter(1))]

    def works(self) -> list[Work]:
        """Those that a handler is there for."""
        return [work for _, _, work in self._heap if isinstance(work, Work)]

    def next_due(self) -> int | None:
        """When the next record is due."""
        return self._heap[0][0] if self._heap else None
