"""One record on its way, and the lots in which records are handed to threads."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.decisions import Bury, Discard
from redrive.record import Record, Write

if TYPE_CHECKING:
    from redrive.envelope import Envelope
    from redrive.handler import Handler
    from redrive.processing.context import Context
    from redrive.processing.processor import PartitionProcessor


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
    """One record on its way through a processor."""

    __slots__ = (
        "awaited",
        "due",
        "ending",
        "envelope",
        "handler",
        "lane",
        "offset",
        "processor",
        "received",
        "record",
        "tries",
    )

    def __init__(  # noqa: PLR0917 -- made once per record: keywords cost a tenth of it
        self,
        processor: PartitionProcessor,
        record: Record,
        handler: Handler,
        offset: int,
        received: int,
        envelope: Envelope | None = None,
    ) -> None:
        self.processor = processor
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
        self.awaited: Context | None = None
        """The context of the call whose manual acknowledgement counts: an earlier one is late."""


class Lot:
    """Records that one thread runs one after the other; or one call of a batch handler."""

    __slots__ = (
        "abandoned",
        "cancelled",
        "current",
        "finished",
        "handler",
        "lanes",
        "processor",
        "recovering",
        "reported",
        "seconds",
        "since",
        "thread",
        "works",
    )

    def __init__(
        self,
        processor: PartitionProcessor,
        works: list[Work],
        lanes: list[Lane],
        handler: Handler | None = None,
    ) -> None:
        self.processor = processor
        self.works = works
        self.lanes = lanes
        self.handler = handler or works[0].handler
        self.recovering = bool(works) and works[0].ending is not None
        self.reported = 0
        self.abandoned = False
        """Set when its thread did not come back in time: whatever it brings later is too late."""
        self.finished = False
        self.seconds: float | None = None
        """How long its records took, once they have run."""
        self.current: Record | None = None
        """The record whose handler runs, or ran last; of a batch, the first of its records."""
        self.since = monotonic()
        """When it began."""
        self.thread: int | None = None
        """The thread that runs it; None on an event loop."""
        self.cancelled = False
        """Set when the partition is taken away: what has not begun shall not."""

    def begins(self, record: Record) -> None:
        """Take note that the handler of a record begins."""
        self.current, self.since = record, monotonic()

    def let_go(self, lane: Lane | None) -> None:
        """Somebody else frees that lane: whoever does so does it once."""
        if lane is not None:
            self.lanes.remove(lane)

    @property
    def in_one_call(self) -> bool:
        """Whether all its records go into one call of a batch handler."""
        return self.handler.batch is not None and not self.recovering

    @property
    def is_async(self) -> bool:
        """Whether the function to be called is async."""
        return self.handler.recover_is_async if self.recovering else self.handler.is_async

    @property
    def may_hang(self) -> bool:
        """Whether the function has a time-out, and cannot be interrupted when it is over."""
        return self.handler.timeout is not None and not self.is_async


class Pending:
    """The result of a manual-ack handler that returned: its acknowledgement is yet to come."""


PENDING: Final = Pending()


class TakenCareOf(list[Write]):
    """The result of a recovery that acknowledged its record: done, with what it has sent."""


class Duplicate:
    """The result of a record that needs no call: what it asks for was done before."""


DUPLICATE: Final = Duplicate()

Result = None | list[Write] | BaseException | Pending | Duplicate
"""What came of one call: done, done with messages to send, failed, not yet known, or not needed."""
