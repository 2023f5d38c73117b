"""Reports: what became of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, Literal, NamedTuple, TypeAlias

from redrive.envelope import Envelope
from redrive.processing.work import Work
from redrive.record import Record, Write

Kind = Literal["park", "bury", "discard", "hop", "skip", "duplicate"]
"""`hop`: it moved on without a handler's call; `skip`: it was written for another app;
`duplicate`: what it asks for was done before."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a record that is not simply done; complete once its writes are durable."""

    kind: Kind
    offset: int
    record: Record
    writes: Sequence[Write] = ()
    reason: str = ""
    envelope: Envelope | None = None
    error: BaseException | None = None
    sends: Sequence[Write] = ()
    """Those of the writes that a recovery has sent: the first ones."""


Sent: TypeAlias = "tuple[int, list[Write], Work | Record]"
"""A plain tuple: one is made for each record. A fresh record that nobody made a work of is told
from others by being a record."""
_offset: Final = itemgetter(0)


@dataclass(slots=True, eq=False)
class Report:
    """What a step of a processor brought about."""

    done: list[int] = field(default_factory=list)
    """Offsets of records that are done and have nothing to write."""
    sent: list[Sent] = field(default_factory=list)
    """Offsets of records that are done, each with what its handler has sent, and the record."""
    outcomes: list[Outcome] = field(default_factory=list)
    """All others."""
    given_back: list[tuple[Work, int]] = field(default_factory=list)
    """Records that will be read again, and when they may run: they have no outcome yet."""

    def __bool__(self) -> bool:
        return bool(self.done or self.sent or self.outcomes)

    @property
    def offsets(self) -> list[int]:
        """The offsets of all of them."""
        return [
            *self.done,
            *map(_offset, self.sent),
            *[outcome.offset for outcome in self.outcomes],
        ]


def durable(report: Report) -> Report:
    """The same outcomes, with nothing left to write."""
    done = [*report.done, *map(_offset, report.sent)]
    return Report(done, outcomes=[replace(each, writes=(), sends=()) for each in report.outcomes])


class Subject(NamedTuple):
    """The record that an outcome is about, and where it was read."""

    offset: int
    record: Record
    envelope: Envelope
