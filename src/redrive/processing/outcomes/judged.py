"""Judged: what the results of a lot come to, before any of it is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.processing.outcomes.report import Report
from redrive.processing.work import Ending, Result, Work

if TYPE_CHECKING:
    from redrive.envelope import Envelope
    from redrive.processing.outcomes.verdicts import Verdicts


class Judged:
    """What the results of records of one lot come to; it can be taken back until it is durable.

    A unit of work collects one for its own records, and adds it to that of the whole lot when it
    is committed.
    """

    __slots__ = ("_before", "detained", "parked", "report", "settled", "waits")

    def __init__(self) -> None:
        self.report = Report()
        self.waits: dict[Work, int] = {}
        """Until when records without an outcome wait before they are called again."""
        self.detained: set[Work] = set()
        """Those of them that wait for no fault of theirs: broker, database or a rival."""
        self.settled: set[int] = set()
        """The offsets that have an outcome, or were given back."""
        self.parked: set[Work] = set()
        """Those that others of their key have to wait for from now on, in strict order."""
        self._before: list[tuple[Work, int, Envelope | None, Ending | None]] = []

    def judge(self, work: Work, result: Result, now: int, verdicts: Verdicts) -> None:
        """Decide about one result without acting on it; no lock is needed."""
        self._before.append((work, work.tries, work.envelope, work.ending))
        wait = verdicts.of(work, result, now, self.report)
        if wait is not None:
            self.waits[work] = wait
        elif verdicts.is_strict and self.report.outcomes:
            last = self.report.outcomes[-1]
            if last.offset == work.offset and last.kind == "park":
                self.parked.add(work)

    def undo(self) -> None:
        """Nothing of it happened: nothing counts against any record."""
        for work, tries, envelope, ending in reversed(self._before):
            work.tries, work.envelope, work.ending = tries, envelope, ending
        self._before.clear()
        self.parked.clear()

    def detain(self, work: Work, until: int) -> None:
        """Let a record wait that nobody has anything against."""
        self.waits[work] = until
        self.detained.add(work)

    def add(self, committed: Judged) -> None:
        """Take in what a unit of work has made durable."""
        self.report.given_back += committed.report.given_back
        self.waits |= committed.waits
        self.settled.update(committed.report.offsets)
        self.settled.update(work.offset for work, _ in committed.report.given_back)

    def unfinished(self, works: list[Work]) -> list[Work]:
        """Those of the lot's records that go back to their lanes, in their order."""
        return [work for work in works if work.offset not in self.settled]

    def goes_on(self, work: Work) -> bool:
        """Whether those behind a record may run, after it was judged."""
        return (
            work not in self.waits
            and work not in self.parked
            and all(work is not gone for gone, _ in self.report.given_back)
        )
