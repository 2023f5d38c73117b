"""KafkaProgress: a group's committed offsets, read and written without joining the group.

By the admin client: it finds the coordinator at once, where a new consumer needs half a second, and
it keeps no member alive. Brokers refuse these commits while the group has members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.errors import METADATA_BYTES, BrokerError, metadata_too_long
from redrive.ports import Position
from redrive.record import TopicPartition


class KafkaProgress:
    """The committed offsets of one group."""

    def __init__(self, settings: Settings, group: str, *, admin: Admin | None = None) -> None:
        self._group = group
        self._admin = admin or Admin(settings)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """What was committed; offsets that wait for a transaction's end are waited for."""
        if not partitions:
            return {}
        asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        answers = self._admin.ask(
            f"read the progress of group {self._group}", lambda client: self._fetch(client, asked)
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
        self, client: AdminClient, asked: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        # Stable only: an offset that a transaction may still take back is no progress.
        answer = client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, asked)],
            require_stable=True,
        )
        return _checked(answer[self._group].result())

    def _store(self, client: AdminClient, wanted: list[confluent_kafka.TopicPartition]) -> None:
        answer = client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, wanted)]
        )
        try:
            _checked(answer[self._group].result())
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


def _checked(answer: ConsumerGroupTopicPartitions) -> list[confluent_kafka.TopicPartition]:
    """Errors hide in the single partitions of an answer that succeeded."""
    partitions = answer.topic_partitions or []
    for one in partitions:
        if one.error is not None:
            raise KafkaException(one.error)
    return partitions
