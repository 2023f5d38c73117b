"""What a record that was just read is to this app: judged by its topic and its headers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from redrive import envelope as envelopes
from redrive.envelope import Envelope
from redrive.errors import EnvelopeError
from redrive.record import Record


@dataclass(frozen=True, slots=True)
class Ours:
    """A record for one of the app's handlers; without an envelope it is seen for the first time."""

    envelope: Envelope | None


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record that another redrive app wrote back to its origin topic, for itself."""

    app: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that says it is redrive's, and cannot be read."""

    error: EnvelopeError


Intake = Ours | Foreign | Broken
FRESH: Final = Ours(None)


def judge(record: Record, app: str, *, in_delay_topic: bool, was: str | None = None) -> Intake:
    """Tell fresh records from those that redrive has written.

    What it has written while the app `was` called otherwise is the app's own.
    """
    if in_delay_topic:
        return _parsed(record, app)
    written_for = envelopes.addressee(record.headers)
    if written_for is None or written_for[1] != record.topic:
        # Headers that somebody passed on from a record of another topic say nothing about this one:
        # skipping it for them would lose it.
        return FRESH
    if written_for[0] not in (app, was):
        return Foreign(written_for[0])
    return _parsed(record, app)


def _parsed(record: Record, app: str) -> Intake:
    try:
        envelope = envelopes.parse(record.headers)
    except EnvelopeError as error:
        return Broken(error)
    # Whatever waits in this app's delay topics is its own, also if it was brought there from those
    # of an app of another name: with that name on it, it would be skipped when written back.
    return Ours(envelope if envelope.app == app else replace(envelope, app=app))
