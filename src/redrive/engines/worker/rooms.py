"""Rooms: partitions that follow a source partition of this worker, where the order is strict.

The group does not assign them. Whoever is assigned a source partition takes them up with it, and
lets go of them with it: so one worker decides about all records of a key, wherever they wait.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from redrive.engines.waiting_rooms import gate_of, rooms_of
from redrive.engines.worker.reader import places as places_of
from redrive.kafka.errors import BrokerError
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.app import App
    from redrive.engines.worker.subscription import Subscription
    from redrive.kafka.log import KafkaLog
    from redrive.ports import Position
    from redrive.processing.order.key_gate import KeyGate

log: Final = logging.getLogger("redrive.worker")


class Rooms:
    """Which partitions follow which. Of an app without strict order, none does."""

    def __init__(
        self, app: App, topics: Subscription, kafka_log: KafkaLog, max_in_flight: int
    ) -> None:
        self._app = app
        self._topics = topics
        self._kafka_log = kafka_log
        self._max_in_flight = max_in_flight
        self.strict = app.ordering == "strict"
        self._seen: dict[TopicPartition, frozenset[str]] = {}
        """The delay topics that there were when a source partition was taken up."""

    def of(
        self, sources: Collection[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Source partitions with their rooms, as topics are now; and those that have none yet.

        Topics that have come meanwhile count: a version that was taken back may have parked there.
        """
        if not self.strict or not sources:
            return [*sources], []
        self._topics.grow()
        delays = frozenset(self._topics.delays)
        found = self._kafka_log.topics(delays)
        counts = {name: count for name, (_, count) in found.items()}
        ready: list[TopicPartition] = []
        rooms: list[TopicPartition] = []
        for source in sources:
            try:
                rooms += rooms_of(self._app, source, counts)
            except BrokerError as error:
                log.warning("%s", error)
                continue
            self._seen[source] = delays
            ready.append(source)
        # Sources first: what is open of a room finds the gate of its source.
        return [*ready, *rooms], [source for source in sources if source not in ready]

    def outgrown(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """Source partitions that were taken up before a delay topic came."""
        if not self.strict:
            return []
        now = self._topics.delays.keys()
        return [each for each in self.sources(places) if not now <= self._seen.get(each, now)]

    def with_followers(
        self, places: Collection[TopicPartition], among: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """These partitions, and those among others that come and go with them."""
        if not self.strict:
            return list(places)
        numbers = {place.partition for place in places}
        return [*places, *(p for p in among if p.partition in numbers and p not in places)]

    def owned(self, consumer: Consumer) -> dict[TopicPartition, None]:
        """What a consumer has, in order; it is not asked where no partition follows another."""
        return dict.fromkeys(places_of(consumer.assignment()) if self.strict else ())

    def sources(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that others follow; without strict order, all of them."""
        if not self.strict:
            return list(places)
        return [place for place in places if place.topic in self._app.handlers]

    def gates(self, starts: Mapping[TopicPartition, Position]) -> dict[TopicPartition, KeyGate]:
        """The gate of each partition: one for a source partition and its rooms.

        What waits in the rooms is read for it: all of it, keys and headers only are kept.
        """
        gates: dict[TopicPartition, KeyGate] = {}
        if not self.strict:
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
