"""Pausing: partitions that are not read for a while, and read on without a delay."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.engines.worker.consuming import kafkas
from redrive.kafka import meeting

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.engines.worker.partition import Partition
    from redrive.record import TopicPartition

_LOOK_AGAIN: Final = 60.0
"""Seconds after which it is asked again who leads a topic."""


class Pausing:
    """Pauses partitions and goes on with them. Only the poll thread uses it."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._leaders: dict[str, tuple[float, dict[int, int]]] = {}

    def pause(self, partitions: Collection[Partition]) -> None:
        """Read nothing more of them."""
        if partitions:
            self._consumer.pause([kafkas(each.place) for each in partitions])
            for each in partitions:
                each.paused = True

    def resume(self, partitions: Collection[Partition], among: Iterable[Partition]) -> None:
        """Read on; brokers of whom nothing was read meanwhile are woken."""
        if not partitions:
            return
        awake = {self._leader(each.place) for each in among if not each.paused}
        self._consumer.resume([kafkas(each.place) for each in partitions])
        for each in partitions:
            each.paused = False
            leader = self._leader(each.place)
            if leader not in awake:
                awake.add(leader)
                meeting.wake(self._consumer, kafkas(each.place))

    def _leader(self, place: TopicPartition) -> int | None:
        looked, found = self._leaders.get(place.topic, (0.0, {}))
        if not found or monotonic() - looked > _LOOK_AGAIN:
            found = meeting.leaders(self._consumer, place.topic)
            self._leaders[place.topic] = (monotonic(), found)
        return found.get(place.partition)
