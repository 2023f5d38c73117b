"""Unacked: records whose handler has returned, and that wait for a manual acknowledgement."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from redrive.processing.work import Result, Work


class Unacked:
    """Those that wait, until when, and words that came before their handlers returned."""

    def __init__(self) -> None:
        self._ends: dict[Work, int | None] = {}
        self._first: list[tuple[int, int, Work]] = []
        """Those that have an end, the first ahead; some of them are not waited for any more."""
        self._sequence = count()
        self._early: dict[Work, Result] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, work: Work) -> bool:
        return work in self._ends

    def expect(self, work: Work, now: int) -> None:
        """Wait for the acknowledgement of a record, as long as its handler's time-out says."""
        timeout = work.handler.timeout
        if timeout is None:
            self._ends[work] = None
            return
        self._ends[work] = end = now + timeout
        heappush(self._first, (end, next(self._sequence), work))

    def forget(self, work: Work) -> None:
        """Wait no more."""
        del self._ends[work]

    def said_early(self, work: Work, result: Result) -> None:
        """Keep a word that came before the handler returned."""
        self._early[work] = result

    def first_word(self, work: Work, result: Result) -> Result:
        """The first word counts, also if the handler failed after it."""
        return self._early.pop(work, result) if self._early else result

    def take_overdue(self, now: int) -> list[Work]:
        """Wait no more for those whose time is over: these are they."""
        overdue: list[Work] = []
        while (end := self.next_end()) is not None and end <= now:
            work = heappop(self._first)[2]
            self.forget(work)
            overdue.append(work)
        return overdue

    def next_end(self) -> int | None:
        """When the first of them is overdue."""
        first = self._first
        while first and self._ends.get(first[0][2]) != first[0][0]:
            heappop(first)
        return first[0][0] if first else None
