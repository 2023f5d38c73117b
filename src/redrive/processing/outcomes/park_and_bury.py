"""Messages that say what became of a record: to a delay topic, its origin, the dead topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from redrive.decisions import Bury, Discard, Park
from redrive.envelope import Envelope, user_headers
from redrive.fingerprint import Fingerprint, grouped
from redrive.processing.outcomes.report import Outcome, Subject
from redrive.record import Record, Write

if TYPE_CHECKING:
    from redrive.app import App


def park(app: App, subject: Subject, to: Park, error: BaseException | None) -> Outcome:
    """To a delay topic: an attempt has failed."""
    offset, record, envelope = subject
    moved = replace(envelope, attempt=to.attempt, due=to.due, not_before=to.not_before)
    write = _write(app.delay_topic(to.delay), record, moved)
    if app.ordering == "strict":  # whoever owns its partition decides about all of its key
        write = write._replace(partition=moved.origin_partition)
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


def behind(app: App, subject: Subject) -> Outcome:
    """To the topic of followers: one before it of its key is parked; it is not an attempt."""
    offset, record, envelope = subject
    write = _write(app.behind_topic, record, envelope)
    write = write._replace(partition=envelope.origin_partition)
    return Outcome("hop", offset, record, (write,), "behind", envelope)


def to_origin(subject: Subject) -> Outcome:
    """Back to its origin topic and partition, where it is received as any record is."""
    offset, record, envelope = subject
    write = _write(envelope.origin_topic, record, envelope)._replace(
        partition=envelope.origin_partition, timestamp=envelope.origin_timestamp
    )
    return Outcome("hop", offset, record, (write,), "to its origin", envelope)


def bury_or_discard(
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
