"""Rooms: partitions that follow a source partition of this worker, where the order is strict.

The group does not assign them. Whoever is assigned a source partition takes them up with it, and
lets go of them with it: so one worker decides about all records of a key, wherever they wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from redrive.engines.waiting_rooms import gate_of, rooms_of
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.worker.subscription import Subscription
    from redrive.kafka.log import KafkaLog
    from redrive.ports import Position
    from redrive.processing.order.key_gate import KeyGate


class Rooms:
    """Which partitions follow which. Of an app without strict order, none does."""

    def __init__(
        self, app: App, topics: Subscription, kafka_log: KafkaLog, max_in_flight: int
    ) -> None:
        self._app = app
        self._topics = topics
        self._kafka_log = kafka_log
        self._max_in_flight = max_in_flight
        self._strict = app.ordering == "strict"

    def of(self, sources: Collection[TopicPartition]) -> list[TopicPartition]:
        """The rooms of source partitions, as topics are now."""
        if not self._strict or not sources:
            return []
        found = self._kafka_log.topics([*self._topics.delays])
        counts = {name: count for name, (_, count) in found.items()}
        return [room for source in sources for room in rooms_of(self._app, source, counts)]

    def with_followers(
        self, places: Collection[TopicPartition], among: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """These partitions, and those among others that come and go with them."""
        if not self._strict:
            return list(places)
        numbers = {place.partition for place in places}
        return [*places, *(p for p in among if p.partition in numbers and p not in places)]

    def sources(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that others follow; without strict order, all of them."""
        if not self._strict:
            return list(places)
        return [place for place in places if place.topic in self._app.handlers]

    def gates(self, starts: Mapping[TopicPartition, Position]) -> dict[TopicPartition, KeyGate]:
        """The gate of each partition: one for a source partition and its rooms.

        What waits in the rooms is read for it: all of it, keys and headers only are kept.
        """
        gates: dict[TopicPartition, KeyGate] = {}
        if not self._strict:
            return gates
        for source in self.sources(starts):
            rooms = {
                place: start
                for place, start in starts.items()
                if place.partition == source.partition and place != source
            }
            gate = gate_of(
                self._app,
                self._kafka_log,
                source,
                starts[source].offset,
                rooms,
                max_in_flight=self._max_in_flight,
            )
            gates |= dict.fromkeys([source, *rooms], gate)
        return gates
