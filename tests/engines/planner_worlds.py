"""What planners look at, twice: a broker in memory, and a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Protocol

import confluent_kafka
import pytest
from confluent_kafka import Producer
from memory_engine import MemoryFences, MemoryLog, make_spec

from redrive import App, RetryPolicy
from redrive.config import load_settings
from redrive.engines.spark.committed_offsets import Fence
from redrive.engines.spark.planner import Planner
from redrive.engines.spark.ranges import Range
from redrive.engines.words import LaneName
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.ports import Position, Progress
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import TOPICS_EVERY

DELAY_TOPIC = {"message.timestamp.type": "LogAppendTime"}


class ShiftedClock:
    """The machine's clock, moved by hand: hours pass for a planner, not for the broker."""

    def __init__(self) -> None:
        self._shift = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self._shift

    def was_set(self) -> int:
        return 0  # hours have passed

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
    def fence(self, app: App, place: TopicPartition) -> Fence: ...
    def forget_progress(self, app: App) -> None: ...


def world_for(request: pytest.FixtureRequest, prefix: str) -> Iterator[World]:
    """One world after the other, for a fixture with these two parameters."""
    if request.param == "memory":
        yield InMemory(prefix)
        return
    on_kafka = OnKafka(prefix, request.getfixturevalue("redrive_stack").bootstrap)
    yield on_kafka
    on_kafka.close()


def app_maker(world: World) -> Callable[..., App]:
    """Makes an app on these topics (the prefix is added), with its own topics created."""
    created: set[str] = set()

    def make(*topics: str, delays: str = "", **options: Any) -> App:
        app = App(world.prefix, retry=RetryPolicy(delays), **options)
        for topic in topics:
            app.handler(f"{world.prefix}.{topic}")(lambda record, ctx: None)
        for topic in {app.dead_topic, *app.delay_topics} - created:
            world.create(topic, delay=topic in app.delay_topics)
            created.add(topic)
        return app

    return make


def first_place(world: World) -> TopicPartition:
    """The first partition of a topic that exists."""
    world.create(f"{world.prefix}.in")
    return TopicPartition(f"{world.prefix}.in", 0)


def planned(one: Planner) -> list[tuple[int, int, int]]:
    """Partition, start and end of what is planned, in order."""
    ranges = [each for task in one.plan() for each in task]
    return sorted((each.partition, each.start, each.end) for each in ranges)


def complete(world: World, app: App, plan: list[list[Range]]) -> None:
    world.progress(app).commit({each.place: Position(each.end) for task in plan for each in task})


def recreate(world: World, place: TopicPartition, number: int) -> None:
    world.delete(place.topic)
    world.create(place.topic)
    world.send(place, number)
    world.clock.advance(TOPICS_EVERY)


def planner(world: World, app: App, lane: LaneName = "main", **options: Any) -> Planner:
    names = ("log", "has_members", "progress", "fence")
    ports = {name: options.pop(name) for name in names if name in options}
    given: dict[str, Any] = {
        "log": world.log,
        "has_members": lambda: False,
        "progress": world.progress(app),
        "fence": (lambda place: world.fence(app, place)) if app.delivery == "transaction" else None,
        **ports,
    }
    return Planner(
        app,
        make_spec(**options),
        lane,
        clock=world.clock,
        **given,
    )


class InMemory:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.log = MemoryLog(self.broker)
        self._fences = MemoryFences(self.broker)

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

    def fence(self, app: App, place: TopicPartition) -> Fence:
        return self._fences.fence(app.name, place)

    def forget_progress(self, app: App) -> None:
        self.broker.forget_progress(app.name)


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
        # A planner does not wait for leaders, and those of a new topic are there a moment later.
        self.log.all_bounds([TopicPartition(topic, number) for number in range(partitions)])

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

    def fence(self, app: App, place: TopicPartition) -> Fence:
        return TransactionalProducer(self._settings, app.name, place)

    def forget_progress(self, app: App) -> None:
        # As it is when offsets.retention.minutes are over, without waiting for them.
        self._admin.client.delete_consumer_groups([app.name])[app.name].result()

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
