"""Handing messages over to librdkafka, and tracking what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from threading import Lock
from types import MethodType
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.errors import PublishError
from redrive.kafka.errors import (
    NotAllowedError,
    first_not_allowed,
    is_not_allowed,
    not_allowed,
    publish_error,
    refusal,
)
from redrive.messages import Columns, Messages
from redrive.record import Headers, Write
from redrive.tuning import QUEUE_FULL_POLL

_ANY_PARTITION: Final = -1
_UNWRITABLE: Final = (OverflowError, TypeError, ValueError)
"""What confluent_kafka raises for arguments that are invalid for any message."""

TAKEN_BACK: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 -- so named
"""Errors of messages that were purged. Those of the second kind may have been written."""


class Refused(NamedTuple):
    """A write that did not become durable, and why."""

    write: Write
    error: KafkaError
    partition: int | None


class Outlet:
    """One librdkafka producer, and whether it can still write. Thread-safe."""

    def __init__(self, producer: Producer) -> None:
        self.ended_by: KafkaError | None = None
        """The fatal error after which it refuses everything, if any."""
        self.not_allowed: NotAllowedError | None = None
        """The missing permission that a write ran into, if any: it ends the run."""
        self.producer = producer
        self._handed = self._settled = 0
        """How many handovers there were, and for how many the result is known."""
        self._lock = Lock()

    def outstanding(self, number: float) -> int:
        """How many messages are in flight for the handover of that number.

        A producer does not say whose messages it still holds. So all of them count, until it was
        empty once: messages handed over by others after that are not waited for.
        """
        with self._lock:
            if number > self._settled and not len(self.producer):
                self._settled = self._handed
            return len(self.producer) if number > self._settled else 0

    def poll(self, seconds: float) -> None:
        """Let messages be delivered; returns when some were, or after that time.

        A fatal error is raised here, once. librdkafka still reports on all that it was given.
        """
        try:
            self.producer.poll(seconds)
        except KafkaException as raised:
            self.ended_by = error = raised.args[0]
            if is_not_allowed(error.name()):
                needs = "WRITE on a topic, or IDEMPOTENT_WRITE on the cluster"
                self.not_allowed = not_allowed("write", error.name(), needs)

    def hand_over(self, writes: Sequence[Write]) -> KafkaHandover:
        """Begin to write all of them, in their order."""
        handed = KafkaHandover(writes, self)
        self.produce(writes, handed.refused)
        with self._lock:  # only now: nobody was waiting for it before
            self._handed += 1
            handed.number = self._handed
        return handed

    def produce(self, writes: Sequence[Write], refused: list[Refused]) -> None:
        """Begin to write these, in order; those that are not accepted go to `refused`."""
        for part in writes.parts if isinstance(writes, Messages) else (writes,):
            if isinstance(part, Columns):
                self._produce_columns(part, refused)
            else:
                self._produce(part, refused)

    # librdkafka reports only failures, each to its message's own callback: a message's content
    # does not identify it. A bound method is the cheapest callback that knows its write.

    def _produce(self, writes: Iterable[Write], refused: list[Refused]) -> None:
        produce, report = self.producer.produce, _reporter(refused)
        for write in writes:
            topic, key, value, headers, partition, timestamp = write
            where = _ANY_PARTITION if partition is None else partition
            mine = MethodType(report, write)
            while True:
                try:
                    if headers or timestamp is not None:
                        _check_names(headers)
                        produce(topic, value, key, where, mine, mine, timestamp or 0, [*headers])
                    else:
                        produce(topic, value, key, where, mine)
                except BufferError:  # librdkafka's queue is full: let it deliver
                    self.poll(QUEUE_FULL_POLL)
                    continue
                except KafkaException as raised:
                    error = raised.args[0]
                    if error.code() == KafkaError._FATAL:  # noqa: SLF001 -- its name
                        self.ended_by = self.ended_by or error
                    refused.append(Refused(write, error, partition))
                except _UNWRITABLE as raised:
                    error = KafkaError(KafkaError._INVALID_ARG, str(raised))  # noqa: SLF001 -- its name
                    refused.append(Refused(write, error, partition))
                break

    def _produce_columns(self, columns: Columns, refused: list[Refused]) -> None:
        topic, produce, report_write = columns.topic, self.producer.produce, _reporter(refused)

        def report(number: int, error: KafkaError, message: Message) -> None:
            report_write(columns.writes[number], error, message)

        for number, (key, value) in enumerate(zip(columns.keys, columns.values, strict=True)):
            try:
                produce(topic, value, key, _ANY_PARTITION, MethodType(report, number))
            except (BufferError, KafkaException, *_UNWRITABLE):
                self._produce([columns.writes[number]], refused)


def _check_names(headers: Headers) -> None:
    """Check it: confluent_kafka aborts on a name that is not text, librdkafka cuts at a NUL."""
    for name, _ in headers:
        if not str.isascii(name):
            name.encode()
        if "\0" in name:
            raise ValueError(f"the name of header {name!r} contains a NUL")


def _reporter(refused: list[Refused]) -> Callable[[Write, KafkaError, Message], None]:
    """What callbacks call. They do not reference their producer, or it would keep itself alive."""

    def report(write: Write, error: KafkaError, message: Message) -> None:
        refused.append(Refused(write, error, message.partition()))

    return report


class KafkaHandover:
    """Messages in flight."""

    def __init__(self, writes: Sequence[Write], outlet: Outlet) -> None:
        self.refused: list[Refused] = []
        self.number = inf
        """Handovers with smaller numbers came before it; inf while it is being handed over."""
        self._writes = writes
        self._outlet = outlet

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def outstanding(self) -> int:
        """How many messages of its producer are in flight; 0 once none of its own is."""
        return self._outlet.outstanding(self.number)

    @property
    def ended(self) -> bool:
        """Whether its producer failed fatally."""
        return self._outlet.ended_by is not None

    @property
    def topics(self) -> set[str]:
        """Where its messages go."""
        return {write.topic for write in self._writes}

    def poll(self, seconds: float) -> None:
        """Let messages be delivered; returns when some were, or after that time."""
        self._outlet.poll(seconds)

    def take_back(self) -> None:
        """Purge what is not acknowledged yet; it is refused with one of TAKEN_BACK."""
        self._outlet.producer.purge()

    def error(self) -> PublishError | None:
        """Which were refused, if any."""
        if not self.refused:
            return None
        found = first_refused(self.refused, self._writes)
        self._outlet.not_allowed = self._outlet.not_allowed or first_not_allowed(found.reasons)
        return found


def first_refused(refused: Sequence[Refused], writes: Sequence[Write]) -> PublishError:
    """The first in the order of the writes: reports arrive in any order."""
    order = {id(write): number for number, write in enumerate(writes)}
    ordered = sorted(refused, key=lambda one: order[id(one.write)])
    reasons = [
        publish_error(one.write.topic, one.partition, one.error.name(), one.error.str())
        for one in ordered
    ]
    return refusal([one.write for one in ordered], reasons, len(writes))
