"""FlushPublisher: written when `publish` returns, or an error that names what was refused."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

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

    def _deliver(self, writes: Iterable[Write], *, alone: bool) -> list[Refused]:
        producer = self._producer(alone=alone)
        refused: list[Refused] = []
        for write in writes:
            try:
                produce(producer, write, refused)
            except KafkaException as raised:
                refused.append(Refused(write, raised.args[0], write.partition))
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


def produce(producer: Producer, write: Write, refused: list[Refused]) -> None:
    """Hand a write to librdkafka; if it is refused later, that is noted."""
    options: dict[str, Any] = {} if write.timestamp is None else {"timestamp": write.timestamp}
    if write.headers:
        options["headers"] = list(write.headers)
    report = partial(_report, refused, write)
    where = _ANY_PARTITION if write.partition is None else write.partition
    while True:
        try:
            producer.produce(
                write.topic, write.value, write.key, where, on_delivery=report, **options
            )
        except BufferError:  # librdkafka's queue is full: let it deliver
            producer.poll(_POLL_SECONDS)
        else:
            return


def _report(
    refused: list[Refused], write: Write, error: KafkaError | None, message: Message
) -> None:
    if error is not None:
        refused.append(Refused(write, error, message.partition()))


def first_refused(refused: Sequence[Refused], writes: Sequence[Write]) -> PublishError:
    """The first in the order of the writes: reports come in any order."""
    order = {id(write): number for number, write in enumerate(writes)}
    first = min(refused, key=lambda one: order[id(one.write)])
    error = publish_error(first.write.topic, first.partition, first.error.name(), first.error.str())
    if len(refused) > 1:
        error.add_note(f"{len(refused)} of {len(writes)} writes were refused")
    error.refused = [one.write for one in refused]
    return error
