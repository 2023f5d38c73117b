"""What planners look at, twice: a broker in memory, and a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Producer
from memory_engine import MemoryLog, make_spec

from redrive import App
from redrive.config import load_settings
from redrive.engines.spark.planner import Planner
from redrive.engines.words import Lane
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topics import KafkaTopics
from redrive.ports import Progress
from redrive.record import TopicPartition, Write
from redrive.testing.broker import MemoryBroker
from redrive.testing.clock import VirtualClock

DELAY_TOPIC = {"message.timestamp.type": "LogAppendTime"}


class ShiftedClock:
    """The machine's clock, moved by hand: hours pass for a planner, not for the broker."""

    def __init__(self) -> None:
        self._shift = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self._shift

    def advance(self, by: int) -> None:
        self._shift += by


class World(Protocol):
    """What can happen to topics, and a planner that looks at them."""

    clock: VirtualClock | ShiftedClock
    log: Any
    prefix: str

    def create(self, topic: str, partitions: int = 1, *, delay: bool = False) -> None: ...
    def send(self, place: TopicPartition, number: int) -> None: ...
    def commit_transaction(self, place: TopicPartition, number: int) -> None: ...
    def abort_transaction(self, place: TopicPartition, number: int) -> None: ...
    def open_transaction(self, place: TopicPartition, number: int) -> Callable[[], None]: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def delete(self, topic: str) -> None: ...
    def truncate(self, place: TopicPartition, before: int) -> None: ...
    def progress(self, app: App) -> Progress: ...


def planner(world: World, app: App, lane: Lane = "main", **options: Any) -> Planner:
    ports = {name: options.pop(name) for name in ("log", "has_members") if name in options}
    given: dict[str, Any] = {"log": world.log, "has_members": lambda: False, **ports}
    return Planner(
        app,
        make_spec(**options),
        lane,
        progress=world.progress(app),
        clock=world.clock,
        **given,
    )


class InMemory:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.log = MemoryLog(self.broker)

    def create(self, topic: str, partitions: int = 1, *, delay: bool = False) -> None:
        self.broker.create(topic, partitions, DELAY_TOPIC if delay else None)

    def send(self, place: TopicPartition, number: int) -> None:
        self.broker.publish([Write(place.topic, None, b"v", (), place.partition)] * number)

    def commit_transaction(self, place: TopicPartition, number: int) -> None:
        self.send(place, number)
        self.broker.gap(place)

    def abort_transaction(self, place: TopicPartition, number: int) -> None:
        self.broker.gap(place, number + 1)

    def open_transaction(self, place: TopicPartition, number: int) -> Callable[[], None]:
        self.log.stable[place] = self.broker.bounds(place)[1]
        self.send(place, number)

        def commit() -> None:
            del self.log.stable[place]
            self.broker.gap(place)

        return commit

    def grow(self, topic: str, partitions: int) -> None:
        self.broker.grow(topic, partitions)

    def delete(self, topic: str) -> None:
        self.broker.delete(topic)

    def truncate(self, place: TopicPartition, before: int) -> None:
        self.broker.truncate(place, before)

    def progress(self, app: App) -> Progress:
        return self.broker.progress(app.name)


class OnKafka:
    def __init__(self, prefix: str, bootstrap: str) -> None:
        self.prefix = prefix
        self.clock = ShiftedClock()
        self._bootstrap = bootstrap
        self._settings = load_settings({"bootstrap": bootstrap}, environ={})
        self._admin = Admin(self._settings, patience=20)
        self._topics = KafkaTopics(self._settings, admin=self._admin)
        self._publisher = KafkaPublisher(self._settings)
        self.log = KafkaLog(self._settings, prefix, admin=self._admin)
        self._numbers = count()

    def create(self, topic: str, partitions: int = 1, *, delay: bool = False) -> None:
        self._topics.create(topic, partitions, DELAY_TOPIC if delay else {})

    def send(self, place: TopicPartition, number: int) -> None:
        self._publisher.publish([Write(place.topic, None, b"v", (), place.partition)] * number)

    def commit_transaction(self, place: TopicPartition, number: int) -> None:
        self.open_transaction(place, number)()

    def abort_transaction(self, place: TopicPartition, number: int) -> None:
        end = self.log.bounds(place)[1]
        self._begin(place, number).abort_transaction()
        self._wait_for(place, end + number + 1)

    def open_transaction(self, place: TopicPartition, number: int) -> Callable[[], None]:
        end = self.log.bounds(place)[1]
        producer = self._begin(place, number)

        def commit() -> None:
            producer.commit_transaction()
            self._wait_for(place, end + number + 1)

        return commit

    def grow(self, topic: str, partitions: int) -> None:
        self._topics.grow(topic, partitions)
        # A producer looks at a topic's partitions now and then only.
        self._publisher = KafkaPublisher(self._settings)

    def delete(self, topic: str) -> None:
        self._topics.delete(topic)

    def truncate(self, place: TopicPartition, before: int) -> None:
        request = [confluent_kafka.TopicPartition(*place, before)]
        for future in self._admin.client.delete_records(request).values():
            future.result()

    def progress(self, app: App) -> Progress:
        return KafkaProgress(self._settings, app.name, admin=self._admin)

    def close(self) -> None:
        self.log.close()

    def _begin(self, place: TopicPartition, number: int) -> Producer:
        name = f"{self.prefix}-{next(self._numbers)}"
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": name})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(number):
            producer.produce(place.topic, b"v", partition=place.partition)
        producer.flush()
        return producer

    def _wait_for(self, place: TopicPartition, end: int) -> None:
        # Markers are written a moment after the end of their transaction was promised.
        self._admin.wait_until(f"{place} to {end}", lambda: self.log.bounds(place)[1] >= end)
