"""KafkaProgress: a group's committed offsets, read and written without joining the group.

Written by the admin client: it keeps no member alive, and brokers refuse these commits while the
group has members. Read by a consumer that never subscribes: asked for a group's offsets, the admin
client ends the whole process with a segmentation fault when the group has just moved to another
broker (librdkafka's issue 5040), as it does whenever a broker restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.config import consumer_config, make_handle
from redrive.kafka.errors import METADATA_BYTES, BrokerError, metadata_too_long
from redrive.ports import Position
from redrive.record import TopicPartition

_FETCH_SECONDS: Final = 2.0


class KafkaProgress:
    """The committed offsets of one group."""

    def __init__(self, settings: Settings, group: str, *, admin: Admin | None = None) -> None:
        self._group = group
        self._admin = admin or Admin(settings)
        # Stable offsets only: one that a transaction may still take back is no progress.
        self._config = consumer_config(settings, group)
        self._consumer: Consumer | None = None
        self._lock = threading.Lock()

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """What was committed; offsets that wait for a transaction's end are waited for."""
        if not partitions:
            return {}
        asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        answers = self._admin.ask(
            f"read the progress of group {self._group}", lambda _: self._fetch(asked)
        )
        return {
            TopicPartition(one.topic, one.partition): Position(one.offset, one.metadata or "")
            for one in answers
            if one.offset >= 0
        }

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit all; durable when this returns."""
        if not positions:
            return
        wanted = [self._wanted(partition, position) for partition, position in positions.items()]
        try:
            self._admin.ask(
                f"commit the progress of group {self._group}",
                lambda client: self._store(client, wanted),
            )
        except _MembersError:
            raise BrokerError(
                f"group {self._group} has active members, so nobody else can commit for it: another"
                " run of this app, or another consumer with its name, is active; stop one of them"
            ) from None

    def _fetch(
        self, asked: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        with self._lock:
            if self._consumer is None:
                self._consumer = make_handle(Consumer, self._config)
            self._consumer.poll(0)  # what it has to say goes to the log
            return _checked(self._consumer.committed(asked, _FETCH_SECONDS))

    def _store(self, client: AdminClient, wanted: list[confluent_kafka.TopicPartition]) -> None:
        answer = client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, wanted)]
        )
        try:
            _checked(answer[self._group].result().topic_partitions or [])
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise _MembersError from None
            raise

    def _wanted(
        self, partition: TopicPartition, position: Position
    ) -> confluent_kafka.TopicPartition:
        if len(position.metadata.encode()) > METADATA_BYTES:
            raise metadata_too_long(self._group, partition)
        # metadata= must be text, also when there is none: librdkafka would keep what was there.
        return confluent_kafka.TopicPartition(
            *partition, position.offset, metadata=position.metadata
        )


class _MembersError(Exception):
    """The group has members."""


def _checked(
    partitions: list[confluent_kafka.TopicPartition],
) -> list[confluent_kafka.TopicPartition]:
    """Errors hide in the single partitions of an answer that succeeded."""
    for one in partitions:
        if one.error is not None:
            raise KafkaException(one.error)
    return partitions
