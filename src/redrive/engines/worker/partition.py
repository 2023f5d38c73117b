"""Partition: one assigned partition, from its assignment to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engines.weights import Weights
from redrive.processing.acks import AckTracker
from redrive.processing.done_beyond import METADATA_LIMIT
from redrive.processing.notes import ROOM, TOPIC, with_note
from redrive.processing.processor import PartitionProcessor

if TYPE_CHECKING:
    from redrive.ports import Position
    from redrive.processing.scope import Scope
    from redrive.record import Record, TopicPartition


class Partition:
    """One assigned partition: its processor, how much of it is in flight, how far it is committed.

    Only the poll thread uses it, but for its processor and tracker.
    """

    def __init__(
        self,
        scope: Scope,
        place: TopicPartition,
        start: Position,
        *,
        delay: int | None,
        topic_id: str = "",
    ) -> None:
        self.place = place
        self.topic_id = topic_id
        """Of the topic that it is read from: another may have its name later."""
        self.delay = delay
        self.start = start
        self.tracker = AckTracker()
        self.tracker.assign(start)
        self.processor = PartitionProcessor(scope, place, self.tracker, delay=delay)
        self.committed: Position | None = start
        self.acknowledged: int | None = None
        """The offset of the commit that was answered last."""
        self.committed_count = 0
        """How many records were complete when it was last committed."""
        self.paused = False
        self.paused_by_user = False
        self.read_to = start.offset
        """The offset after the last that was seen."""
        self.kept = self.kept_bytes = 0
        """Outcomes that wait for their transaction, and the bytes of their messages."""
        self.end: int | None = None
        """Where reading ends, if it shall."""
        self._weights = Weights()

    def position(self) -> Position | None:
        """What may be committed, and for which topic."""
        position = self.tracker.position(METADATA_LIMIT - ROOM)
        return None if position is None else with_note(position, TOPIC, self.topic_id)

    def note_received(self, records: list[Record]) -> None:
        """Take note of how much came in, once it was taken."""
        self._weights.add(records)
        last = records[-1].offset
        self.read_to = last + 1
        if self.end is not None and last >= self.end:
            self.reached(last)

    def went_back(self, offset: int) -> None:
        """Take note that everything from there on is read again."""
        self._weights.went_back(offset)
        self.read_to = offset

    def within(self, records: list[Record]) -> list[Record]:
        """Those that are to be read; of a partition with an end, no others."""
        end = self.end
        if end is None or records[-1].offset < end:
            return records
        return [record for record in records if record.offset < end]

    def reached(self, offset: int) -> None:
        """No record below this offset will come any more."""
        if self.end is not None:
            offset = min(offset, self.end)
        self.read_to = max(self.read_to, offset)
        self.tracker.received_up_to(offset)

    @property
    def bytes_in_flight(self) -> int:
        """At most so many: everything from the first record that is not complete."""
        return self._weights.from_offset(self.tracker.prefix)

    def wants_pause(self, most: int, most_bytes: int) -> bool:
        """Whether nothing more should be read now; it goes on at half of the limit."""
        if self.paused_by_user or (self.end is not None and self.read_to >= self.end):
            return True
        share = 2 if self.paused else 1
        return self.in_flight >= max(1, most // share) or (
            self.bytes_in_flight + self.kept_bytes >= max(1, most_bytes // share)
        )

    @property
    def in_flight(self) -> int:
        """How many records were received and are not complete, or not yet for good."""
        return self.tracker.in_flight + self.kept
