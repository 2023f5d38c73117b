"""A real Kafka, as redrive's own pieces see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from redrive.config import Settings, load_settings
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.record import TopicPartition


@pytest.fixture
def settings(redrive_stack) -> Settings:
    return load_settings({"bootstrap": redrive_stack.bootstrap}, environ={})


@pytest.fixture
def nowhere() -> Settings:
    """An address at which nobody listens."""
    # The discard port: nobody has it, and whoever has it does not talk.
    return load_settings(
        {"bootstrap": "127.0.0.1:9", "librdkafka": {"socket.timeout.ms": 1000}}, environ={}
    )


@pytest.fixture
def admin(settings) -> Admin:
    return Admin(settings, patience=20)


@pytest.fixture
def log(settings, admin, redrive_prefix) -> Iterator[KafkaLog]:
    log = KafkaLog(settings, redrive_prefix, admin=admin, patience=20)
    yield log
    log.close()


@pytest.fixture
def place(redrive_topic) -> TopicPartition:
    """The only partition of an empty topic."""
    return TopicPartition(redrive_topic(), 0)


@pytest.fixture
def transaction(redrive_stack, redrive_prefix) -> Callable[..., Producer]:
    """A producer with an open transaction in which the values are written."""
    producer = Producer(
        {"bootstrap.servers": redrive_stack.bootstrap, "transactional.id": redrive_prefix}
    )
    producer.init_transactions()

    def begin(place: TopicPartition, *values: bytes) -> Producer:
        producer.begin_transaction()
        for value in values:
            producer.produce(place.topic, value, partition=place.partition)
        producer.flush()
        return producer

    return begin


@pytest.fixture
def wait_for_end(admin, log) -> Callable[[TopicPartition, int], None]:
    """A marker is written a moment after its transaction's end was promised."""

    def wait(place: TopicPartition, end: int) -> None:
        admin.wait_until(f"{place} ending at {end}", lambda: log.bounds(place)[1] == end)

    return wait
