"""Unacked: records whose handler has returned, and that wait for a manual acknowledgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.processing.work import Result, Work


class Unacked:
    """Those that wait, until when, and words that came before their handlers returned."""

    def __init__(self) -> None:
        self._ends: dict[Work, int | None] = {}
        self._early: dict[Work, Result] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, work: Work) -> bool:
        return work in self._ends

    def expect(self, work: Work, now: int) -> None:
        """Wait for the acknowledgement of a record, as long as its handler's time-out says."""
        timeout = work.handler.timeout
        self._ends[work] = None if timeout is None else now + timeout

    def forget(self, work: Work) -> None:
        """Wait no more."""
        del self._ends[work]

    def said_early(self, work: Work, result: Result) -> None:
        """Keep a word that came before the handler returned."""
        self._early[work] = result

    def first_word(self, work: Work, result: Result) -> Result:
        """The first word counts, also if the handler failed after it."""
        return self._early.pop(work, result) if self._early else result

    def overdue(self, now: int) -> list[Work]:
        """Those whose time is over."""
        return [work for work, end in self._ends.items() if end is not None and end <= now]

    def next_end(self) -> int | None:
        """When the first of them is overdue."""
        return min((end for end in self._ends.values() if end is not None), default=None)
