"""What became of a record, and the messages that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from redrive.decisions import Bury, Discard, Park
from redrive.envelope import Envelope, user_headers
from redrive.fingerprint import Fingerprint, grouped
from redrive.record import Record, Write

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.processing.work import Work

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


class Report:
    """What a step of a processor brought about."""

    __slots__ = ("done", "given_back", "outcomes", "sent")

    def __init__(self) -> None:
        self.done: list[int] = []
        """Offsets of records that are done and have nothing to write."""
        self.sent: list[Sent] = []
        """Offsets of records that are done, each with what its handler has sent, and the record."""
        self.outcomes: list[Outcome] = []
        """All others."""
        self.given_back: list[tuple[Work, int]] = []
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
    rest = Report()
    rest.done = [*report.done, *map(_offset, report.sent)]
    rest.outcomes = [replace(each, writes=(), sends=()) for each in report.outcomes]
    return rest


class Subject(NamedTuple):
    """The record that an outcome is about, and where it was read."""

    offset: int
    record: Record
    envelope: Envelope


def park(app: App, subject: Subject, to: Park, error: BaseException | None) -> Outcome:
    """To a delay topic: an attempt has failed."""
    offset, record, envelope = subject
    moved = replace(envelope, attempt=to.attempt, due=to.due, not_before=to.not_before)
    write = _write(app.delay_topic(to.delay), record, moved)
    return Outcome("park", offset, record, (write,), envelope=moved, error=error)


def hop(
    app: App,
    subject: Subject,
    to: Park,
    here: str,
    *,
    reason: str = "on its way",
    error: BaseException | None = None,
) -> Outcome:
    """To the next delay topic: its time has not come, or that of its handler, as the error says.

    One that no policy has may not exist: then it stays in the topic `here`.
    """
    moved = park(app, subject, to, error)
    (write,) = moved.writes
    if write.topic not in app.delay_topics:
        write = write._replace(topic=here)
    return replace(moved, kind="hop", reason=reason, writes=(write,))


def to_origin(subject: Subject) -> Outcome:
    """Back to its origin topic and partition, where it is received as any record is."""
    offset, record, envelope = subject
    write = _write(envelope.origin_topic, record, envelope)._replace(
        partition=envelope.origin_partition, timestamp=envelope.origin_timestamp
    )
    return Outcome("hop", offset, record, (write,), "to its origin", envelope)


def end(
    app: App,
    subject: Subject,
    decision: Bury | Discard,
    error: BaseException | None,
    sends: Sequence[Write] = (),
) -> Outcome:
    """To the dead topic; or nowhere, where the policy says so."""
    offset, record, envelope = subject
    last = replace(
        envelope,
        due=None,
        not_before=None,
        dead_reason=decision.reason,
        error_group=_group(envelope, decision.reason),
    )
    if isinstance(decision, Discard):
        given = tuple(sends)
        return Outcome("discard", offset, record, given, decision.reason, last, error, given)
    writes = (*sends, _write(app.dead_topic, record, last))
    return Outcome("bury", offset, record, writes, decision.reason, last, error, tuple(sends))


def _group(envelope: Envelope, reason: str) -> str:
    """The fingerprint of a dead letter: the same whichever process buries it, and when."""
    cause = envelope.error_group or Fingerprint("", envelope.error_type or "").id
    return grouped(cause, reason)


def _write(topic: str, record: Record, envelope: Envelope) -> Write:
    return Write(topic, record.key, record.value, envelope.headers(user_headers(record.headers)))
