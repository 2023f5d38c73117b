"""HouseSlice: one partition of a house within a task, in strict order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from redrive.engines.spark.ranges import House, Range
from redrive.engines.spark.slices import Slice
from redrive.engines.waiting_rooms import gate_of
from redrive.ports import Position
from redrive.processing.order.key_gate import KeyGate
from redrive.processing.progress.notes import CLAIM, with_note, without_notes
from redrive.record import Record, TopicPartition
from redrive.tuning import RANGE_WINDOW

if TYPE_CHECKING:
    from redrive.engines.spark.runtime import Runtime


class HouseSlice(Slice):
    """Reads what was put off once more, and tells the gate what is committed."""

    def __init__(
        self,
        runtime: Runtime,
        each: Range,
        start: Position,
        house: House,
        gate: KeyGate,
        *,
        most_bytes: int,
    ) -> None:
        super().__init__(runtime, each, start, most_bytes=most_bytes, gate=gate)
        self._house = house
        self._gate = gate
        begin = start.offset
        if each.delay is not None:
            begin = gate.puts_off(each.place, start, each.end)
        self._looks_for_ready = begin > start.offset
        """Whether some of what was put off may run at once."""
        if self._looks_for_ready:
            self.read_from(begin)

    @property
    def wants_records(self) -> bool:
        """Whether more should be read now; what was asked for always is.

        All others may have to wait for it, and give no room before it is there.
        """
        if not self.exhausted and self.tracker.waits_to_read_again:
            return True
        return super().wants_records

    @property
    def bytes_in_flight(self) -> int:
        """At most so many; in a room, about so many.

        What waits there for long keeps nothing behind it from being done, or from being put off.
        """
        found = super().bytes_in_flight
        if self.range.delay is None:
            return found
        return found * self.tracker.in_flight // max(1, self.tracker.beyond_prefix)

    @property
    def finished(self) -> bool:
        """Whether all is complete that is not put off."""
        return super().finished and not self._goes_back

    @property
    def _goes_back(self) -> bool:
        return self.processor.goes_back or self.tracker.waits_to_read_again

    @property
    def waits_for_others(self) -> int:
        """How many of its records wait until others of their key are complete, or are not due."""
        if self._goes_back:
            return 0
        held = len(self._gate.held(self.range.place)) + self.processor.not_due
        return held + (self._gate.held_up if self.range.delay is None else 0)

    def read(self, wait: float = 0) -> list[Record]:
        """The next records; none before reading has gone back, if it has to."""
        if self._looks_for_ready:  # only now: not all of the house was there before
            self._looks_for_ready = False
            self.runtime.dispatcher.committed(self.processor, self.committed)
        if self.processor.goes_back:
            return []
        records = super().read(wait)
        if self.exhausted and not self.trouble:
            self.runtime.dispatcher.reached(self.processor, self.range.end)
        return records

    def go_back(self) -> bool:
        """Read those again that were put off and may run now; whether there are some."""
        offset = self.runtime.dispatcher.take_seek(self.processor)
        if offset is None:
            return False
        self.read_from(offset)
        return True

    def commit(self, *, every: float, last: bool = False) -> None:
        """Commit what is complete, if it is time; keys of which nothing is left are free then.

        Not in the end: what would follow from it is the next task's.
        """
        before = self.committed
        super().commit(every=every, last=last)
        if self.committed != before and not last:
            self.runtime.dispatcher.committed(self.processor, self.committed)

    def check_own(self) -> None:
        """See that the house is still the task's own."""
        self.runtime.houses.look([self._house.source])

    def labelled(self, position: Position) -> Position:
        """With the claim, in the source partition: whoever commits later says who handles it."""
        found = super().labelled(position)
        is_source = self.range.place == self._house.source
        return with_note(found, CLAIM, self._house.claim) if is_source else found


def taken(
    runtime: Runtime, ranges: Sequence[Range]
) -> tuple[list[Range], dict[TopicPartition, Position], dict[TopicPartition, KeyGate]]:
    """The ranges of a task with the sources of their houses, what is committed, and the gates.

    What waits in the rooms is read for it; keys and headers only are kept.
    """
    houses = {each.house.source: each.house for each in ranges if each.house is not None}
    if not houses:
        return [*ranges], {}, {}
    starts = {
        place: without_notes(position)
        for place, position in runtime.houses.take(houses.values()).items()
    }
    gates: dict[TopicPartition, KeyGate] = {}
    opened = [*ranges]
    for source, house in houses.items():
        rooms = [place for place, _ in house.places[1:]]
        gates |= dict.fromkeys([source, *rooms], _gate(runtime, source, rooms, starts))
        if all(each.place != source for each in ranges):
            at = starts[source].offset
            topic_id = house.places[0][1]
            opened.append(Range(*source, at, at, topic_id=topic_id, house=house))
    return opened, starts, gates


def _gate(
    runtime: Runtime,
    source: TopicPartition,
    rooms: Collection[TopicPartition],
    starts: dict[TopicPartition, Position],
) -> KeyGate:
    return gate_of(
        runtime.app,
        runtime.kafka_log,
        source,
        starts[source].offset,
        {room: starts[room] for room in rooms},
        max_in_flight=RANGE_WINDOW,
    )
