"""Both brokers behind one face, with the few things that ports do not name."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import count

import confluent_kafka
import pytest
from confluent_kafka import Producer

from redrive.config import load_settings
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ports import Log, Progress, Publisher, Topics
from redrive.record import Record, TopicPartition
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

NOBODY = {"topic.metadata.propagation.max.ms": 300}
"""How long a topic may be unknown: short, for tests that write to one that does not exist."""


class UnderTest:
    """What both have in common."""

    publisher: Publisher
    log: Log
    topics: Topics

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = count()

    def progress(self, group: str) -> Progress:
        raise NotImplementedError

    def name(self) -> str:
        return f"{self._prefix}.{next(self._numbers)}"

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = self.name()
        self.topics.create(name, partitions, config or {})
        return name

    def all_records(self, topic: str) -> list[Record]:
        places = [TopicPartition(topic, number) for number in range(self.log.partitions(topic))]
        return [
            record for place in places for record in self.log.read(place, *self.log.bounds(place))
        ]


class InMemory(UnderTest):
    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.publisher = self.log = self.topics = self.broker

    def progress(self, group: str) -> Progress:
        return self.broker.progress(group)

    def now(self) -> int:
        return self.clock.now()

    def delete(self, topic: str) -> None:
        self.broker.delete(topic)

    def truncate(self, partition: TopicPartition, before: int) -> None:
        self.broker.truncate(partition, before)

    def gap(self, partition: TopicPartition) -> None:
        self.broker.gap(partition, 3)

    def close(self) -> None:
        pass


class OnKafka(UnderTest):
    def __init__(self, prefix: str, bootstrap: str) -> None:
        super().__init__(prefix)
        self.bootstrap = bootstrap
        self.settings = load_settings({"bootstrap": bootstrap, "librdkafka": NOBODY}, environ={})
        self.admin = Admin(self.settings, patience=10)
        self.publisher = KafkaPublisher(self.settings)
        # Short of patience: one test asks for what never comes.
        self.log = KafkaLog(self.settings, f"{prefix}.reader", admin=self.admin, patience=2)
        self.topics = KafkaTopics(self.settings, admin=self.admin)

    def progress(self, group: str) -> Progress:
        return KafkaProgress(self.settings, group, admin=self.admin)

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def delete(self, topic: str) -> None:
        self.topics.delete(topic)

    def truncate(self, partition: TopicPartition, before: int) -> None:
        request = [confluent_kafka.TopicPartition(*partition, before)]
        for future in self.admin.client.delete_records(request).values():
            future.result()

    def gap(self, partition: TopicPartition) -> None:
        _, end = self.log.bounds(partition)
        producer = self.transaction(partition, [b"aborted 1", b"aborted 2"])
        producer.abort_transaction()
        # The marker is written a moment after the abort was promised.
        self.admin.wait_until("the marker", lambda: self.log.bounds(partition)[1] == end + 3)

    def transaction(self, partition: TopicPartition, values: list[bytes]) -> Producer:
        """A producer with an open transaction in which these values are written."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": f"{self._prefix}-writer"}
        )
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.produce(partition.topic, value, partition=partition.partition)
        producer.flush()
        return producer

    def close(self) -> None:
        self.log.close()
        self.publisher.close()


@pytest.fixture(params=["memory", "kafka"])
def broker(request: pytest.FixtureRequest, redrive_prefix: str) -> Iterator[InMemory | OnKafka]:
    if request.param == "memory":
        yield InMemory(redrive_prefix)
        return
    stack = request.getfixturevalue("redrive_stack")
    on_kafka = OnKafka(redrive_prefix, stack.bootstrap)
    yield on_kafka
    on_kafka.close()
