"""KafkaProgress: a group's committed offsets, read and written without joining the group.

By a consumer that never subscribes: brokers refuse its commits while the group has members. Not by
the admin client: asked for anything that a group's coordinator knows, it aborts the whole process
when the coordinator goes away (an assertion) or has just changed (librdkafka's issue 5040).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.config import consumer_config, make_handle
from redrive.kafka.errors import (
    METADATA_BYTES,
    BrokerError,
    NotAllowedError,
    is_not_allowed,
    metadata_too_long,
    not_allowed,
)
from redrive.ports import Position
from redrive.record import TopicPartition
from redrive.tuning import COMMITTED_SECONDS


class KafkaProgress:
    """The committed offsets of one group."""

    def __init__(
        self,
        settings: Settings,
        group: str,
        *,
        admin: Admin | None = None,
        stable: bool = True,
        check: Callable[[Collection[TopicPartition]], object] = lambda _: None,
    ) -> None:
        """With `stable`, wait for offsets that an open transaction may commit or abort.

        That can take until the transaction's time-out, if its producer was killed: callers that
        only want to know who committed last do not wait. `check` is called before each attempt to
        commit, and raises if these partitions are not for this one to commit any more.
        """
        self._check = check
        self._group = group
        self._admin = admin or Admin(settings)
        self._config = {
            **consumer_config(settings, group),
            # A commit that finds no coordinator fails after the session time-out.
            "session.timeout.ms": 6000,
            "isolation.level": "read_committed" if stable else "read_uncommitted",
        }
        self._consumer: Consumer | None = None
        self._lock = threading.Lock()

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed offsets; waits for those that are part of an open transaction."""
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
                lambda _: self._store(wanted, positions),
            )
        except _MembersError:
            raise BrokerError(
                f"group {self._group} has active members, so nobody else can commit for it:"
                " another run of this app, or another consumer in this group, is active; stop one"
                " of them"
            ) from None

    def may_be_asked(self) -> bool:
        """Whether this user may read a group's offsets at all, whatever topics it may read."""
        try:
            self.committed([TopicPartition(self._group, 0)])
        except _ShutOutError:
            return False
        except NotAllowedError:
            pass  # on the topic, which does not matter here
        return True

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _fetch(
        self, asked: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        with self._lock:
            consumer = self._ready()
            try:
                return _checked(consumer.committed(asked, COMMITTED_SECONDS))
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise self._shut_out(error) from None
                self._check_allowed(consumer)
                raise

    def _store(
        self,
        wanted: list[confluent_kafka.TopicPartition],
        places: Collection[TopicPartition],
    ) -> None:
        self._check(places)
        try:
            with self._lock:
                _checked(self._ready().commit(offsets=wanted, asynchronous=False) or [])
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise _MembersError from None
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                topics = ", ".join(sorted({one.topic for one in wanted}))
                raise not_allowed(
                    f"commit progress in {topics}", error.name(), f"READ on topic {topics}"
                ) from None
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise self._shut_out(error) from None
            raise

    def _ready(self) -> Consumer:
        if self._consumer is None:
            self._consumer = make_handle(Consumer, self._config)
        self._check_allowed(self._consumer)
        return self._consumer

    def _check_allowed(self, consumer: Consumer) -> None:
        """Poll for errors: only poll() reports that this user may not look up the coordinator.

        The request itself would wait for a coordinator that it never finds.
        """
        message = consumer.poll(0)
        error = None if message is None else message.error()
        if error is not None and is_not_allowed(error.name()):
            raise self._shut_out(error)

    def _shut_out(self, error: KafkaError) -> NotAllowedError:
        group = f"group {self._group}"
        what = f"read and write the progress of {group}"
        return _ShutOutError(str(not_allowed(what, error.name(), f"READ on {group}")))

    def _wanted(
        self, partition: TopicPartition, position: Position
    ) -> confluent_kafka.TopicPartition:
        if len(position.metadata.encode()) > METADATA_BYTES:
            raise metadata_too_long(self._group, partition)
        # metadata= must be a string even if there is none: librdkafka would keep the old one.
        return confluent_kafka.TopicPartition(
            *partition, position.offset, metadata=position.metadata
        )


class _MembersError(Exception):
    """The group has members."""


class _ShutOutError(NotAllowedError):
    """The missing permission is the one on the group."""


def _checked(
    partitions: list[confluent_kafka.TopicPartition],
) -> list[confluent_kafka.TopicPartition]:
    """A successful response can hide errors of single partitions."""
    for one in partitions:
        if one.error is not None:
            raise KafkaException(one.error)
    return partitions
