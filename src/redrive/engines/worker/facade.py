"""Facades: what a handler can ask of the consumer, carried out by the poll thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.loop import Loop
    from redrive.engines.worker.partition import Partition
    from redrive.processing.work import Work
    from redrive.record import TopicPartition


class PartitionConsumer:
    """The consumer, as far as the record's own partition goes. From any thread."""

    def __init__(self, facades: Facades, place: TopicPartition) -> None:
        self._facades = facades
        self.partition = place

    def pause(self) -> None:
        """Read nothing more of this partition; what was read before still runs."""
        self._facades.set_paused(self.partition, paused=True)

    def resume(self) -> None:
        """Go on reading."""
        self._facades.set_paused(self.partition, paused=False)

    @property
    def position(self) -> int | None:
        """The offset that is read next; None once the partition is another worker's."""
        each = self._facades.find(self.partition)
        return None if each is None else each.read_to


class Facades:
    """Makes them."""

    def __init__(self, loop: Loop, consumer: Consumer, assignment: Assignment) -> None:
        self._loop = loop
        self._consumer = consumer
        self._assignment = assignment

    def of(self, work: Work) -> PartitionConsumer:
        """The one for a record."""
        return PartitionConsumer(self, work.assigned.place)

    def find(self, place: TopicPartition) -> Partition | None:
        """The partition, if it is still here."""
        return self._assignment.partitions.get(place)

    def set_paused(self, place: TopicPartition, *, paused: bool) -> None:
        """Pause or resume; the poll thread sees to it at its next turn."""
        each = self.find(place)
        if each is not None:
            each.paused_by_user = paused
