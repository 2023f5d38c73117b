"""RefusedWorks: records of units of work whose writes were refused, and what comes next.

Their unit was undone, and with it what their handlers did in the database. Where the handler itself
had failed, the failure is kept, and it is not called again. Where it has sent something that can
never be written, that is its failure. Otherwise it is called again, once its topic takes writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive.delivery.refusing_topics import RefusingTopics, Waiting
from redrive.errors import PublishError

if TYPE_CHECKING:
    from redrive.processing.outcomes.report import Outcome, Report
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.work import Work
    from redrive.record import Write


class Blame(NamedTuple):
    """What one record waits for, and what comes then."""

    reason: PublishError
    fails_with: BaseException | None
    """With what it fails without a call; None: its handler is called."""
    at_once: bool = False
    """Whether nothing is waited for: it would be refused whenever it is written."""


class RefusedWorks:
    """The records of one process that are to blame. May be used from many threads."""

    def __init__(self, topics: RefusingTopics) -> None:
        self._topics = topics
        self._found: dict[Work, Blame] = {}

    def __len__(self) -> int:
        for work in [work for work in list(self._found) if work.assigned.closed]:
            self._found.pop(work, None)  # somebody else has its partition by now
        return len(self._found)

    @property
    def with_those_behind(self) -> int:
        """How many records wait: they, and those behind them in their lanes."""
        return _with_those_behind([each for each in list(self._found) if not each.assigned.closed])

    def of(self, processor: PartitionProcessor) -> Waiting:
        """Those of one partition."""
        mine = {
            work: b for work, b in list(self._found.items()) if work.assigned is processor.assigned
        }
        return Waiting(
            len(mine), _with_those_behind([*mine]), [blame.reason for blame in mine.values()]
        )

    def first(self, works: Sequence[Work]) -> Blame | None:
        """What the first of these waits for, if it is one of them."""
        return self._found.get(works[0]) if self._found else None

    def before_the_next(self, works: list[Work]) -> list[Work]:
        """The first of these, and those behind it up to the next that is to blame."""
        for number, work in enumerate(works[1:], 1) if self._found else ():
            if work in self._found:
                return works[:number]
        return works

    def until(self, blame: Blame) -> int | None:
        """Until when it waits; None: it need not."""
        return None if blame.at_once else self._topics.until([blame.reason.topic])

    def note(self, error: PublishError, report: Report, works: Sequence[Work]) -> bool:
        """Note whose writes were refused; False: nobody's in particular."""
        reasons = dict(zip(map(id, error.refused), error.reasons, strict=True))
        by_offset = {work.offset: work for work in works}
        found: dict[Work, Blame] = {}
        for offset, write, outcome in _written(report):
            reason, work = reasons.get(id(write)), by_offset.get(offset)
            if reason is not None and work is not None and not _is_final(found.get(work)):
                found[work] = _blame(work, reason, write, outcome)
        self._found |= found
        for blame in found.values():
            if not blame.at_once:
                self._topics.note(blame.reason)
        return bool(found)

    def committed(self, works: Sequence[Work]) -> None:
        """These are done: what they waited for was taken."""
        for work in works if self._found else ():
            blame = self._found.pop(work, None)
            if blame is not None:
                self._topics.taken([blame.reason.topic])

    def clear(self) -> None:
        """Let go of all."""
        self._found.clear()


def _with_those_behind(works: Sequence[Work]) -> int:
    lanes = {work.lane for work in works if work.lane is not None}
    return sum(work.lane is None for work in works) + sum(len(lane.queue) for lane in lanes)


def _blame(work: Work, reason: PublishError, write: Write, outcome: Outcome | None) -> Blame:
    sent = outcome is None or any(write is each for each in outcome.sends)
    if sent and reason.kind == "message":
        return Blame(reason, reason, at_once=True)
    return Blame(reason, None if outcome is None or work.ending is not None else outcome.error)


def _is_final(blame: Blame | None) -> bool:
    return blame is not None and blame.at_once


def _written(report: Report) -> Iterator[tuple[int, Write, Outcome | None]]:
    """All that was to be written, and for which record."""
    for offset, sends, _ in report.sent:
        for write in sends:
            yield offset, write, None
    for outcome in report.outcomes:
        for write in outcome.writes:
            yield outcome.offset, write, outcome
