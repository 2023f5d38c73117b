"""Reader: the group's consumer, and what it reads, as records by partition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message

from redrive.config import Settings
from redrive.engines.worker.options import GroupProtocol
from redrive.kafka.config import Config, consumer_config
from redrive.kafka.records import records_of
from redrive.ports import Position
from redrive.record import Record, TopicPartition

_error: Final = methodcaller("error")
_topic: Final = methodcaller("topic")
_partition: Final = methodcaller("partition")
_first: Final = itemgetter(0)
_CLASSIC: Final = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 20_000,
    "heartbeat.interval.ms": 2_000,
}
_NOT_WITH_THE_NEW_PROTOCOL: Final = (*_CLASSIC, "group.protocol.type")

ByPartition = dict[TopicPartition, list[Record]]
Trouble = tuple[KafkaError, TopicPartition | None]
"""An error, and the partition that it is about."""


def worker_config(
    settings: Settings, app: str, protocol: GroupProtocol, instance: str | None
) -> Config:
    """For the consumer of a worker: a member of the group, static by its instance's name."""
    config = consumer_config(settings, app)
    if protocol == "classic":
        config = {**_CLASSIC, **config}
    else:
        config = {k: v for k, v in config.items() if k not in _NOT_WITH_THE_NEW_PROTOCOL}
    if instance is not None:
        config["group.instance.id"] = instance
    return {**config, "group.protocol": protocol, "queued.min.messages": 20_000}


def sorted_out(
    messages: list[Message],
) -> tuple[ByPartition, list[tuple[TopicPartition, int]], list[Trouble]]:
    """Records by partition; ends of partitions that were reached; errors."""
    ends: list[tuple[TopicPartition, int]] = []
    errors: list[Trouble] = []
    if any(map(_error, messages)):
        for message in filter(_error, messages):
            _note(message, ends, errors)
        messages = [message for message in messages if message.error() is None]
    by_partition: ByPartition = {}
    # They come in runs of one partition each, and are made records run by run: in half the time.
    for place, run in _runs(messages):
        records = records_of(run, place)
        by_partition[place] = by_partition[place] + records if place in by_partition else records
    return by_partition, ends, errors


def _runs(messages: list[Message]) -> Iterator[tuple[TopicPartition, list[Message]]]:
    places = list(zip(map(_topic, messages), map(_partition, messages), strict=True))
    if places and places.count(places[0]) == len(places):  # as nearly always
        yield TopicPartition(*places[0]), messages
        return
    for place, run in groupby(zip(places, messages, strict=True), _first):
        yield TopicPartition(*place), [message for _, message in run]


def _note(message: Message, ends: list[tuple[TopicPartition, int]], errors: list[Trouble]) -> None:
    error, topic, number = message.error(), message.topic(), message.partition()
    if error is None:
        return
    if error.code() == KafkaError._PARTITION_EOF and topic is not None:  # noqa: SLF001 -- its name in librdkafka
        ends.append((TopicPartition(topic, number or 0), message.offset() or 0))
    else:
        errors.append((error, None if topic is None else TopicPartition(topic, number or 0)))


def kafkas(place: TopicPartition, position: Position | None = None) -> Any:
    """A partition in librdkafka's words."""
    if position is None:
        return confluent_kafka.TopicPartition(place.topic, place.partition)
    return confluent_kafka.TopicPartition(
        place.topic, place.partition, position.offset, metadata=position.metadata
    )


def places(partitions: list[Any]) -> list[TopicPartition]:
    """Partitions in redrive's words."""
    return [TopicPartition(one.topic, one.partition) for one in partitions]


class Reader:
    """Takes what is there, and waits for no more than that."""

    def __init__(self, consumer: Consumer, most: int = 1000) -> None:
        self._consumer = consumer
        self._most = most

    def read(self, seconds: float) -> list[Message]:
        """Wait for one message, up to that time, and take with it what is there."""
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        return [first, *self._consumer.consume(self._most, 0)]
