"""KafkaPublisher: messages handed over, and known to be durable or refused, one by one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.config import Settings
from redrive.errors import PublishError
from redrive.kafka import meeting
from redrive.kafka.config import make_handle, producer_config
from redrive.kafka.errors import publish_error
from redrive.messages import Columns, Messages
from redrive.record import Write

_POLL_SECONDS: Final = 0.1
_ANY_PARTITION: Final = -1
_TOGETHER: Final = 500
"""The most messages handed over in one call: other threads wait for it."""
_FEW: Final = 4
_KIND: Final = itemgetter(0, 3, 4, 5)
"""Topic, headers, partition, time: writes that agree in them can be handed over together."""
_NOTHING_MORE: Final = [(), None, None]


class KafkaPublisher:
    """Writes by an idempotent producer, made when it is first needed. Safe for many threads."""

    def __init__(self, settings: Settings) -> None:
        self._config = producer_config(settings)
        self._producers: dict[bool, Producer] = {}
        self._lock = threading.Lock()

    def hand_over(self, writes: Sequence[Write]) -> KafkaHandover:
        """Begin to write all of them; what came of it is known after some polls."""
        return self._hand_over(writes, self._producer(writes, alone=False))

    def poll(self, seconds: float) -> None:
        """Let messages be delivered; come back when some were, or after that time."""
        self._producer((), alone=False).poll(seconds)

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
        """Let go of the producers."""
        with self._lock:
            self._producers.clear()

    def _hand_over(self, writes: Sequence[Write], producer: Producer) -> KafkaHandover:
        handed = KafkaHandover(writes, producer)
        produce(producer, writes, handed)
        if handed.finished_producer:
            self._forget(producer)
        return handed

    def _deliver(self, writes: Sequence[Write], *, alone: bool) -> list[Refused]:
        producer = self._producer(writes, alone=alone)
        handed = self._hand_over(writes, producer)
        # Every message ends, delivered or refused, within librdkafka's message.timeout.ms.
        while handed.outstanding:
            producer.poll(_POLL_SECONDS)
        if handed.finished_producer:
            self._forget(producer)
        return handed.refused

    def _producer(self, writes: Sequence[Write], *, alone: bool) -> Producer:
        with self._lock:
            if alone not in self._producers:
                config = {**self._config, "batch.num.messages": 1} if alone else self._config
                self._producers[alone] = made = make_handle(Producer, config)
                if writes:
                    meeting.meet(made, writes[0].topic)
            return self._producers[alone]

    def _forget(self, finished: Producer) -> None:
        """After a fatal error a producer refuses everything: the next one is made anew."""
        with self._lock:
            kept = {kind: one for kind, one in self._producers.items() if one is not finished}
            self._producers = kept


class Refused(NamedTuple):
    """A write that did not become durable, and why."""

    write: Write
    error: KafkaError
    partition: int | None


class KafkaHandover:
    """Messages on their way; librdkafka is asked for its word on those that it refuses only.

    One for all messages of a call: what was refused is found again by what is in it.
    """

    def __init__(self, writes: Sequence[Write], producer: Producer) -> None:
        self.refused: list[Refused] = []
        self._writes = writes
        self._producer = producer
        self._by_content: dict[tuple[object, ...], list[Write]] | None = None

    @property
    def outstanding(self) -> int:
        """How many messages of this producer are on their way: none is out when all are in."""
        return len(self._producer)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            content = (message.topic(), message.key(), message.value())
            self.refuse(self._find(content), error, message.partition())

    def refuse(self, write: Write, error: KafkaError, partition: int | None) -> None:
        """Take note that a message did not become durable."""
        self.refused.append(Refused(write, error, partition))

    def error(self) -> PublishError | None:
        """Which were refused, if any."""
        return first_refused(self.refused, self._writes) if self.refused else None

    @property
    def finished_producer(self) -> bool:
        """Whether the producer can write nothing any more."""
        return any(one.error.fatal() for one in self.refused)

    def _find(self, content: tuple[object, ...]) -> Write:
        if self._by_content is None:
            self._by_content = {}
            for write in reversed(self._writes):
                alike = self._by_content.setdefault((write.topic, write.key, write.value), [])
                alike.append(write)
        return self._by_content[content].pop()


def produce(producer: Producer, writes: Sequence[Write], handed: KafkaHandover) -> None:
    """Hand writes to librdkafka, in their order; it reports on each of them."""
    for part in writes.parts if isinstance(writes, Messages) else (writes,):
        if isinstance(part, Columns):
            _produce_columns(producer, part, handed)
        else:
            _produce_writes(producer, part, handed)


def _produce_columns(producer: Producer, columns: Columns, handed: KafkaHandover) -> None:
    topic, take = columns.topic, producer.produce
    for number, (key, value) in enumerate(zip(columns.keys, columns.values, strict=True)):
        try:
            take(topic, value, key, _ANY_PARTITION, handed)
        except (BufferError, KafkaException):
            _produce_one(producer, columns.writes[number], handed)


def _produce_writes(producer: Producer, writes: Sequence[Write], handed: KafkaHandover) -> None:
    for (_, *more), found in groupby(writes, _KIND):
        alike = list(found)
        if more == _NOTHING_MORE:
            for start in range(0, len(alike), _TOGETHER):
                _produce_alike(producer, alike[start : start + _TOGETHER], handed)
        else:
            for write in alike:
                _produce_one(producer, write, handed)


def _produce_alike(producer: Producer, writes: list[Write], handed: KafkaHandover) -> None:
    """Hand over writes to one topic with nothing but keys and values: in one call, if it can be."""
    left = writes
    if len(writes) >= _FEW:
        messages = [{"key": write[1], "value": write[2]} for write in writes]
        taken = producer.produce_batch(writes[0].topic, messages, on_delivery=handed)
        pairs = zip(writes, messages, strict=True) if taken != len(messages) else ()
        # If the queue is full, all behind the first are left. By itself each gets a full answer.
        left = [write for write, message in pairs if "_error" in message]
    for write in left:
        _produce_one(producer, write, handed)


def _produce_one(producer: Producer, write: Write, handed: KafkaHandover) -> None:
    topic, key, value, headers, partition, timestamp = write
    where = _ANY_PARTITION if partition is None else partition
    while True:
        try:
            if headers or timestamp is not None:
                producer.produce(
                    topic, value, key, where, handed, handed, timestamp or 0, [*headers]
                )
            else:
                producer.produce(topic, value, key, where, handed)
        except BufferError:  # librdkafka's queue is full: let it deliver
            producer.poll(_POLL_SECONDS)
        except KafkaException as raised:
            handed.refuse(write, raised.args[0], partition)
            break
        else:
            break


def first_refused(refused: Sequence[Refused], writes: Sequence[Write]) -> PublishError:
    """The first in the order of the writes: reports come in any order."""
    order = {id(write): number for number, write in enumerate(writes)}
    first = min(refused, key=lambda one: order[id(one.write)])
    error = publish_error(first.write.topic, first.partition, first.error.name(), first.error.str())
    if len(refused) > 1:
        error.add_note(f"{len(refused)} of {len(writes)} writes were refused")
    error.refused = [one.write for one in refused]
    return error
