"""One record on its way, its lane, and what can come of a call."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.decisions import Bury, Discard
from redrive.record import Record, TopicPartition, Write
from redrive.tuning import SLOW_RECORD

if TYPE_CHECKING:
    from redrive.envelope import Envelope
    from redrive.handler import Handler


def takes_long(since: float, now: float) -> bool:
    """Whether a record that began then takes long; both on the monotonic clock."""
    return now - since >= SLOW_RECORD


class Assigned:
    """One assignment of a topic-partition, from its beginning to its end."""

    __slots__ = ("closed", "delay", "place")

    def __init__(self, place: TopicPartition, delay: int | None = None) -> None:
        self.place = place
        self.delay = delay
        """Milliseconds, if it is a partition of a delay topic."""
        self.closed = False
        """Set when the partition is taken away: nothing begins any more, late results are void."""


class Lane:
    """A stream of work with its own order: only its head may run, and only once at a time."""

    __slots__ = ("key", "long", "queue")

    def __init__(self, key: object) -> None:
        self.key = key
        self.long = False
        """Whether much was to do when its lot under way was taken."""
        self.queue: deque[Work] = deque()


class Ending(NamedTuple):
    """A record's end, decided but not yet carried out: its recovery comes first."""

    decision: Bury | Discard
    error: BaseException


class Work:
    """One record on its way through its partition."""

    __slots__ = (
        "assigned",
        "awaited",
        "due",
        "ending",
        "envelope",
        "handler",
        "lane",
        "offset",
        "received",
        "record",
        "tries",
    )

    def __init__(  # noqa: PLR0917 -- made once per record: keywords cost a tenth of it
        self,
        assigned: Assigned,
        record: Record,
        handler: Handler,
        offset: int,
        received: int,
        envelope: Envelope | None = None,
    ) -> None:
        self.assigned = assigned
        self.record = record
        """As its handler sees it: in its origin topic."""
        self.handler = handler
        self.offset = offset
        """In the topic it was read from, which may be a delay topic."""
        self.received = received
        self.envelope = envelope
        """None until somebody asks: most records never fail."""
        self.due: int | None = None
        """When it was due, if it was parked."""
        self.tries = 1
        self.ending: Ending | None = None
        self.lane: Lane | None = None
        self.awaited: object = None
        """The context of the call whose manual acknowledgement counts: an earlier one is late."""


class Pending:
    """The result of a manual-ack handler that returned: its acknowledgement is yet to come."""


PENDING: Final = Pending()


class TakenCareOf(list[Write]):
    """The result of a recovery that acknowledged its record: done, with what it has sent."""


class Duplicate:
    """The result of a record that needs no call: what it asks for was done before."""


DUPLICATE: Final = Duplicate()


class Behind:
    """The result of a record that was not called: one before it in its lane has failed."""


BEHIND: Final = Behind()

Result = None | list[Write] | BaseException | Pending | Duplicate | Behind
"""What came of one call: done, done with messages to send, failed, not yet known, or not needed."""
