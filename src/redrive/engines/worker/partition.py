"""Partition: one assigned partition, from its assignment to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engines.weights import Weights
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.progress.done_beyond import METADATA_LIMIT, decode, still_at
from redrive.processing.progress.notes import ROOM, TOPIC, with_note

if TYPE_CHECKING:
    from redrive.delivery.transaction_buffer import TransactionBuffer
    from redrive.ports import Position
    from redrive.processing.calls.scope import Scope
    from redrive.processing.order.key_gate import KeyGate
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
        gate: KeyGate | None = None,
    ) -> None:
        self.place = place
        self.topic_id = topic_id
        """Of the topic that it is read from: another may have its name later."""
        self.delay = delay
        self.start = start
        self.tracker = AckTracker(start)
        self.processor = PartitionProcessor(scope, place, self.tracker, delay=delay, gate=gate)
        self.committed: Position | None = start
        self.committed_at = 0.0
        """When that was sent."""
        self.acknowledged: Position | None = None
        """What was committed by the commit that was answered last."""
        self.committed_count = 0
        """How many records were complete when it was last committed."""
        self.paused = False
        self.paused_by_user = False
        self.read_to = start.offset
        """The offset after the last that was seen."""
        self.left_at: int | None = None
        """The first record that was read and left, because it was beyond the end of then."""
        self.buffer: TransactionBuffer | None = None
        """What waits for its transaction, where there are any."""
        self.end: int | None = None
        """Where reading ends, if it does."""
        self._done_before = decode(start)
        self._weights = Weights()

    def position(self) -> Position | None:
        """What may be committed, and for which topic."""
        position = self.tracker.position(METADATA_LIMIT - ROOM)
        return None if position is None else with_note(position, TOPIC, self.topic_id)

    def at(self, offset: int) -> Position:
        """What a transaction commits that ends there, and for which topic."""
        # Done before this run began, by one without transactions: never what this one has done.
        position = still_at(offset, self._done_before, METADATA_LIMIT - ROOM)
        return with_note(position, TOPIC, self.topic_id)

    def note_received(self, taken: list[Record], left: list[Record]) -> None:
        """Note how much came in and was taken, and what was left: it is beyond the end."""
        if taken:
            self._weights.add(taken)
            self.read_to = taken[-1].offset + 1
        if left:
            self.left_at = left[0].offset if self.left_at is None else self.left_at
            self.reached(left[0].offset)

    def went_back(self, offset: int) -> None:
        """Note that everything from there on is read again."""
        self._weights.went_back(offset)
        self.read_to = offset
        self.left_at = None

    def parted(self, records: list[Record]) -> tuple[list[Record], list[Record]]:
        """Those that are to be read, and those beyond the end of a partition that has one."""
        end = self.end
        if end is None or records[-1].offset < end:
            return records, []
        within = [record for record in records if record.offset < end]
        return within, records[len(within) :]

    def reached(self, offset: int) -> None:
        """No record below this offset will come any more."""
        if self.end is not None:
            offset = min(offset, self.end)
        self.read_to = max(self.read_to, offset)
        self.tracker.received_up_to(offset)

    @property
    def bytes_in_flight(self) -> int:
        """At most so many: everything from the first record that is not complete.

        Of a partition that follows another, about so many. One record may wait there for long, and
        keeps nothing behind it from being done, or from being put off.
        """
        found = self._weights.from_offset(self.tracker.prefix)
        if self.processor.gate is None or self.delay is None:
            return found
        return found * self.tracker.in_flight // max(1, self.tracker.beyond_prefix)

    def wants_pause(self, most: int, most_bytes: int) -> bool:
        """Whether nothing more should be read now; it goes on at half of the limit."""
        if self.paused_by_user or (self.end is not None and self.read_to >= self.end):
            return True
        if self.tracker.waits_to_read_again:
            return False  # all others may have to wait for it, and give no room before it is there
        share = 2 if self.paused else 1
        kept_bytes = 0 if self.buffer is None else self.buffer.bytes
        return self.in_flight >= max(1, most // share) or (
            self.bytes_in_flight + kept_bytes >= max(1, most_bytes // share)
        )

    @property
    def in_flight(self) -> int:
        """How many records were received and are not complete, or not yet for good."""
        return self.tracker.in_flight + (0 if self.buffer is None else self.buffer.records)
