"""FlushPublisher: written when `publish` returns, or an error that names what was refused."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.config import Settings
from redrive.errors import PublishError
from redrive.kafka.config import make_handle, producer_config
from redrive.kafka.errors import publish_error
from redrive.record import Write

_POLL_SECONDS: Final = 0.1
_ANY_PARTITION: Final = -1


class FlushPublisher:
    """Writes by an idempotent producer, made when it is first needed. Safe for many threads."""

    def __init__(self, settings: Settings) -> None:
        self._config = producer_config(settings)
        self._producers: dict[bool, Producer] = {}
        self._lock = threading.Lock()

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; PublishError names the first that was refused."""
        refused = self._deliver(writes, alone=False)
        neighbours = [
            one.write for one in refused if one.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        ]
        if len(neighbours) > 1:
            # Brokers refuse a whole batch for its size, small messages with large ones: those that
            # were only in bad company are written by themselves, after the rest.
            others = [one for one in refused if one.error.code() != KafkaError.MSG_SIZE_TOO_LARGE]
            refused = [*others, *self._deliver(neighbours, alone=True)]
        if refused:
            raise first_refused(refused, writes)

    def close(self) -> None:
        """Let go of the producers. Nothing is in flight outside of `publish`."""
        with self._lock:
            self._producers.clear()

    def _deliver(self, writes: Sequence[Write], *, alone: bool) -> list[Refused]:
        producer = self._producer(alone=alone)
        refused: list[Refused] = []
        produce(producer, writes, refused)
        # Every message ends, delivered or refused, within librdkafka's message.timeout.ms.
        while producer.flush(_POLL_SECONDS * 100):
            pass
        if any(one.error.fatal() for one in refused):
            self._forget(producer)
        return refused

    def _producer(self, *, alone: bool) -> Producer:
        with self._lock:
            if alone not in self._producers:
                config = {**self._config, "batch.num.messages": 1} if alone else self._config
                self._producers[alone] = make_handle(Producer, config)
            return self._producers[alone]

    def _forget(self, finished: Producer) -> None:
        """After a fatal error a producer refuses everything: the next publish makes a new one."""
        with self._lock:
            kept = {kind: one for kind, one in self._producers.items() if one is not finished}
            self._producers = kept


class Refused(NamedTuple):
    """A write that did not become durable, and why."""

    write: Write
    error: KafkaError
    partition: int | None


def produce(producer: Producer, writes: Sequence[Write], refused: list[Refused]) -> None:
    """Hand writes to librdkafka; what is refused, at once or later, is noted."""
    report = _Report(writes, refused)
    hand_over = producer.produce
    for write in writes:
        topic, key, value, headers, partition, timestamp = write
        while True:
            try:
                if headers or partition is not None or timestamp is not None:
                    where = _ANY_PARTITION if partition is None else partition
                    hand_over(topic, value, key, where, report, report, timestamp or 0, [*headers])
                else:
                    hand_over(topic, value, key, _ANY_PARTITION, report)
            except BufferError:  # librdkafka's queue is full: let it deliver
                producer.poll(_POLL_SECONDS)
            except KafkaException as raised:
                refused.append(Refused(write, raised.args[0], partition))
                break
            else:
                break


class _Report:
    """Takes librdkafka's word on messages that were refused; it is asked for no other.

    One for all messages of a call: a refused message is found again by what is in it.
    """

    def __init__(self, writes: Sequence[Write], refused: list[Refused]) -> None:
        self._writes = writes
        self._refused = refused
        self._found: set[int] = set()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        topic, key, value = message.topic(), message.key(), message.value()
        for write in self._writes:
            alike = (write.topic, write.key, write.value) == (topic, key, value)
            if alike and id(write) not in self._found:
                self._found.add(id(write))
                self._refused.append(Refused(write, error, message.partition()))
                return


def first_refused(refused: Sequence[Refused], writes: Sequence[Write]) -> PublishError:
    """The first in the order of the writes: reports come in any order."""
    order = {id(write): number for number, write in enumerate(writes)}
    first = min(refused, key=lambda one: order[id(one.write)])
    error = publish_error(first.write.topic, first.partition, first.error.name(), first.error.str())
    if len(refused) > 1:
        error.add_note(f"{len(refused)} of {len(writes)} writes were refused")
    error.refused = [one.write for one in refused]
    return error
