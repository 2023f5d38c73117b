"""Backpressure: partitions that are not read for a while, and read on without a delay."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from redrive.engines.worker.reader import kafkas
from redrive.kafka import warm_up
from redrive.tuning import LEADERS_ASK_AGAIN, LEADERS_LOOK_AGAIN

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.engines.worker.partition import Partition
    from redrive.record import TopicPartition


class Backpressure:
    """Pauses partitions and goes on with them. Only the poll thread uses it."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._leaders: dict[str, tuple[float, dict[int, int]]] = {}
        self._silent: dict[int | None, float] = {}
        """When a broker did not answer; None: when none of them did."""

    def pause(self, partitions: Collection[Partition]) -> None:
        """Read nothing more of them."""
        if partitions:
            self._consumer.pause([kafkas(each.place) for each in partitions])
            for each in partitions:
                each.paused = True

    def resume(self, partitions: Collection[Partition], among: Iterable[Partition]) -> None:
        """Read on; brokers of whom nothing was read meanwhile are woken, if they answer."""
        if not partitions:
            return
        read = [each.place for each in among if not each.paused]
        self._consumer.resume([kafkas(each.place) for each in partitions])
        for each in partitions:
            each.paused = False
        awake = {self._leader(place) for place in read}
        for each in partitions:
            leader = self._leader(each.place)
            if leader not in awake and not self._is_silent(leader):
                awake.add(leader)
                if not warm_up.wake(self._consumer, kafkas(each.place)):
                    self._silent[leader] = monotonic()

    def _leader(self, place: TopicPartition) -> int | None:
        looked, found = self._leaders.get(place.topic, (-inf, {}))
        if monotonic() - looked > LEADERS_LOOK_AGAIN and not self._is_silent(None):
            answer = warm_up.leaders(self._consumer, place.topic)
            if answer is None:
                self._silent[None] = monotonic()
            else:
                found = answer
                self._leaders[place.topic] = (monotonic(), found)
        return found.get(place.partition)

    def _is_silent(self, broker: int | None) -> bool:
        return monotonic() - self._silent.get(broker, -inf) < LEADERS_ASK_AGAIN
