"""An in-memory Kafka broker, with the semantics that redrive relies on and nothing else.

It passes the same contract suite (`tests/contract`) as the real one: offsets with gaps, nulls,
log-append time, Java's partitioner, deleted records, recreated topics, refused writes.
"""

from __future__ import annotations

import random
import threading
import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.errors import PublishError
from redrive.kafka.errors import (
    METADATA_BYTES,
    BrokerError,
    MissingTopicError,
    NotAllowedError,
    OffsetsGoneError,
    ends_before,
    first_not_allowed,
    metadata_too_long,
    publish_error,
    refusal,
)
from redrive.ports import Clock, Position, TopicState
from redrive.record import NO_TIMESTAMP, Record, TopicPartition, Write
from redrive.tuning import READ_AT_ONCE

BROKER_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}
"""Kafka's defaults for the topic settings that redrive checks."""

_RECORD_OVERHEAD: Final = 70  # a batch of one record: its header and the record's lengths


class MemoryBroker:
    """Publisher, Log and Topics in one; `progress(group)` returns the Progress of a group.

    Thread-safe. Besides what the ports promise, a test can create gaps in offsets, delete old
    records, delete topics and have writes refused.
    """

    def __init__(self, clock: Clock, *, seed: int = 0) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 -- tests repeat by their seed
        self._lock = threading.RLock()
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, dict[TopicPartition, Position]] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._owners: dict[str, int] = {}
        self.not_allowed: NotAllowedError | None = None
        """The missing permission that a write ran into, if any."""

    # Publisher

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:  # noqa: ARG002 -- each is judged by itself in any case
        """Write all that are not refused: in memory they are durable at once."""
        try:
            self.publish(writes)
        except PublishError as error:
            return MemoryHandover(error)
        return MemoryHandover(None)

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all that are not refused, in order; then raise the first refusal."""
        refused: list[tuple[Write, PublishError]] = []
        with self._lock:
            for write in writes:
                try:
                    self._append(write)
                except PublishError as error:
                    refused.append((write, error))
        if refused:
            these, reasons = zip(*refused, strict=True)
            self.not_allowed = self.not_allowed or first_not_allowed(reasons)
            raise refusal(these, reasons, len(writes))

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        """Which of these topics accept nothing at all now, and why."""
        with self._lock:
            asked = {name: self._refusal_of(name) for name in topics}
        found = {name: error for name, error in asked.items() if error is not None}
        self.not_allowed = self.not_allowed or first_not_allowed(found.values())
        return found

    # Log

    def names(self, prefix: str = "") -> list[str]:
        """The topics whose names begin with that."""
        with self._lock:
            return sorted(name for name in self._topics if name.startswith(prefix))

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        with self._lock:
            found = self._topics.get(topic)
            return 0 if found is None else len(found.logs)

    def topic_id(self, topic: str) -> str:
        """The id that tells a recreated topic from the one before."""
        with self._lock:
            return self._topic(topic).id

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first readable offset, and the offset after the last readable one."""
        with self._lock:
            log = self._log(partition)
            return log.start, log.end

    def settle(self, partition: TopicPartition) -> None:
        """Nothing to wait for: what is written can be read."""
        with self._lock:
            self._log(partition)

    def read(self, partition: TopicPartition, start: int, end: int) -> list[Record]:
        """The records with start <= offset < end, as new objects each time.

        An end past the log's is an error: committing it would skip what is written later.
        """
        with self._lock:
            log = self._log(partition)
            if start >= end:
                return []
            if not log.start <= start <= log.end:
                raise OffsetsGoneError(partition, start)
            if end > log.end:
                raise ends_before(partition, log.end, end)
            first, last = (bisect_left(log.offsets, offset) for offset in (start, end))
            return [
                Record(partition.topic, partition.partition, offset, *stored)
                for offset, stored in zip(
                    log.offsets[first:last], log.stored[first:last], strict=True
                )
            ]

    def batches(self, partition: TopicPartition, start: int, end: int) -> Iterator[list[Record]]:
        """The same, a few at a time."""
        records = self.read(partition, start, end)
        for first in range(0, len(records), READ_AT_ONCE):
            yield records[first : first + READ_AT_ONCE]

    def appended_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """For each partition, offset and time of the first record at or after the time, if any."""
        with self._lock:
            return {place: self._log(place).since(time) for place, time in times.items()}

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, partition by partition: for a test's asserts."""
        with self._lock:
            places = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
            return [record for place in places for record in self.read(place, *self.bounds(place))]

    # Progress

    def progress(self, group: str) -> MemoryProgress:
        """The committed offsets of that group: all Progress objects of one group share them."""
        with self._lock:
            return MemoryProgress(self._lock, self._groups.setdefault(group, {}), group)

    # Topics

    def describe(self, names: Collection[str]) -> dict[str, TopicState]:
        """The topics that exist; missing ones are left out."""
        with self._lock:
            found = {name: self._topics[name] for name in names if name in self._topics}
            return {name: topic.state() for name, topic in found.items()}

    def create(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        replication: int | None = None,
    ) -> None:
        """Create a topic."""
        with self._lock:
            if name in self._topics:
                raise BrokerError(f'topic "{name}" already exists: describe it, then change it')
            _at_least_one(name, partitions)
            self._topics[name] = _Topic(
                id=str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
                replication=replication or 1,
                config={**BROKER_DEFAULTS, **(config or {})},
                logs=[_PartitionLog() for _ in range(partitions)],
            )

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions."""
        with self._lock:
            logs = self._topic(name).logs
            if partitions <= len(logs):
                raise BrokerError(
                    f'topic "{name}" has {len(logs)} partitions and cannot be changed to'
                    f" {partitions}: Kafka can only add partitions"
                )
            logs.extend(_PartitionLog() for _ in range(partitions - len(logs)))

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Set these settings, and leave the others as they are."""
        with self._lock:
            self._topic(name).config.update(config)

    # What else can happen to a broker

    def delete(self, name: str) -> None:
        """Delete a topic with its records and all groups' progress in it."""
        with self._lock:
            self._topic(name)
            del self._topics[name]
            for positions in self._groups.values():
                for place in [place for place in positions if place.topic == name]:
                    del positions[place]

    def forget_progress(self, group: str) -> None:
        """Forget what a group committed, as brokers do some time after its last commit."""
        with self._lock:
            self._groups.get(group, {}).clear()

    def truncate(self, partition: TopicPartition, before: int) -> None:
        """Delete the records before that offset, as retention does."""
        with self._lock:
            log = self._log(partition)
            log.start = min(max(before, log.start), log.end)
            kept = bisect_left(log.offsets, log.start)
            del log.offsets[:kept], log.stored[:kept]

    def gap(self, partition: TopicPartition, n: int = 1) -> None:
        """Use up offsets without a record, as transaction markers and aborted records do."""
        with self._lock:
            self._log(partition).end += n

    def refuse(
        self,
        topic: str,
        *,
        error: str | PublishError = "TOPIC_AUTHORIZATION_FAILED",
        times: int | None = None,
    ) -> None:
        """Refuse the next `times` writes to the topic, or all until `accept`.

        `error` is Kafka's name for the reason, or the error to raise.
        """
        with self._lock:
            self._refusals[topic] = _Refusal(error, times)

    def accept(self, topic: str) -> None:
        """Accept writes to the topic again."""
        with self._lock:
            self._refusals.pop(topic, None)

    # Transactions

    def take_over(self, name: str) -> MemoryOwner:
        """Become the owner of a transactional id: whoever had it before is fenced off."""
        with self._lock:
            self._owners[name] = self._owners.get(name, 0) + 1
            return MemoryOwner(self, name, self._owners[name])

    def commit_as(self, name: str, epoch: int, writes: Sequence[Write]) -> None:
        """Write all or nothing, for the owner of that id; behind it is a transaction marker.

        The offsets of what was written in vain are used up.
        """
        from redrive.kafka.transactional_producer import FencedError

        with self._lock:
            if self._owners[name] != epoch:
                raise FencedError(f"somebody else has taken over {name}")
            before = {
                (topic, number): (log.end, len(log.offsets))
                for topic, one in self._topics.items()
                for number, log in enumerate(one.logs)
            }
            try:
                self.publish(writes)
            except PublishError:
                for (topic, number), (_, count) in before.items():
                    self._topics[topic].logs[number].cut(count)
                raise
            finally:
                for (topic, number), (end, _) in before.items():
                    log = self._topics[topic].logs[number]
                    log.end += log.end > end

    # How it is kept

    def _append(self, write: Write) -> None:
        self._check_refusal(write)
        topic = self._topics.get(write.topic)
        if topic is None:
            raise publish_error(write.topic, write.partition, "UNKNOWN_TOPIC_OR_PART")
        if (write.partition or 0) >= len(topic.logs):
            raise publish_error(write.topic, write.partition, "_UNKNOWN_PARTITION")
        if _size(write) > int(topic.config["max.message.bytes"]):
            raise publish_error(write.topic, write.partition, "MSG_SIZE_TOO_LARGE")
        if write.key is None and "compact" in topic.config["cleanup.policy"]:
            raise publish_error(write.topic, write.partition, "INVALID_RECORD")
        number = self._partition_of(write, len(topic.logs))
        topic.logs[number].append((write.key, write.value, write.headers, self._time(topic, write)))

    def _check_refusal(self, write: Write) -> None:
        refusal = self._refusals.get(write.topic)
        if refusal is None or refusal.times == 0:
            return
        if refusal.times is not None:
            refusal.times -= 1
        if isinstance(refusal.error, PublishError):
            raise refusal.error
        raise publish_error(write.topic, write.partition, refusal.error)

    def _refusal_of(self, topic: str) -> PublishError | None:
        if topic not in self._topics:
            return publish_error(topic, None, "UNKNOWN_TOPIC_OR_PART")
        given = self._refusals.get(topic)
        # Only writes use up counted refusals, not checks in between.
        if given is None or given.times is not None or isinstance(given.error, PublishError):
            return None
        error = publish_error(topic, None, given.error)
        return error if error.kind in ("topic", "outage") else None

    def _partition_of(self, write: Write, partitions: int) -> int:
        if write.partition is not None:
            return write.partition
        if write.key is None:
            return self._random.randrange(partitions)
        return partition_for(write.key, partitions)

    def _time(self, topic: _Topic, write: Write) -> int | None:
        if topic.config["message.timestamp.type"] == "LogAppendTime" or write.timestamp is None:
            return self._clock.now()
        return None if write.timestamp == NO_TIMESTAMP else write.timestamp

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            raise MissingTopicError(name)
        return self._topics[name]

    def _log(self, partition: TopicPartition) -> _PartitionLog:
        logs = self._topic(partition.topic).logs
        if not 0 <= partition.partition < len(logs):
            raise BrokerError(f"{partition} does not exist: the topic has {len(logs)} partitions")
        return logs[partition.partition]


class MemoryHandover:
    """Messages that are already written or refused."""

    outstanding = 0

    def __init__(self, error: PublishError | None) -> None:
        self._error = error

    def poll(self, seconds: float) -> None:
        """Nothing is ever in flight."""

    def error(self) -> PublishError | None:
        """Which were refused, if any."""
        return self._error


class MemoryOwner:
    """Writes in transactions, until somebody else takes over its id."""

    def __init__(self, broker: MemoryBroker, name: str, epoch: int) -> None:
        self._broker, self._name, self._epoch = broker, name, epoch

    def commit(
        self,
        writes: Sequence[Write],
        positions: Mapping[TopicPartition, Position],
    ) -> None:
        """Write all or nothing; FencedError if somebody has taken over."""
        assert not positions, "progress in transactions of the broker in memory is not needed yet"  # noqa: S101 -- a test that needs it fails here
        self._broker.commit_as(self._name, self._epoch, writes)


class MemoryProgress:
    """The committed offsets of one group."""

    def __init__(
        self, lock: threading.RLock, positions: dict[TopicPartition, Position], group: str
    ) -> None:
        self._lock = lock
        self._positions = positions
        self._group = group

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """What was committed; partitions without progress are left out."""
        with self._lock:
            return {
                place: self._positions[place] for place in partitions if place in self._positions
            }

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Remember the positions."""
        for place, position in positions.items():
            if len(position.metadata.encode()) > METADATA_BYTES:
                raise metadata_too_long(self._group, place)
        with self._lock:
            self._positions.update(positions)


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key, as Java's clients and librdkafka's murmur2_random choose it."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Kafka's variant of MurmurHash2, 32 bits, with its seed."""
    mix, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * mix & mask
        word = (word ^ word >> 24) * mix & mask
        hashed = (hashed * mix & mask) ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * mix & mask
    hashed = (hashed ^ hashed >> 13) * mix & mask
    return hashed ^ hashed >> 15


_Stored = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]


@dataclass
class _PartitionLog:
    """One partition: which offsets hold a record, and where the log starts and ends."""

    start: int = 0
    end: int = 0
    offsets: list[int] = field(default_factory=list)
    stored: list[_Stored] = field(default_factory=list)

    def append(self, stored: _Stored) -> None:
        self.offsets.append(self.end)
        self.stored.append(stored)
        self.end += 1

    def since(self, time: int) -> tuple[int, int] | None:
        for offset, (_, _, _, at) in zip(self.offsets, self.stored, strict=True):
            if at is not None and at >= time:
                return offset, at
        return None

    def cut(self, count: int) -> None:
        del self.offsets[count:], self.stored[count:]


@dataclass
class _Topic:
    id: str
    replication: int
    config: dict[str, str]
    logs: list[_PartitionLog]

    def state(self) -> TopicState:
        return TopicState(len(self.logs), self.replication, dict(self.config))


@dataclass
class _Refusal:
    error: str | PublishError
    times: int | None


def _size(write: Write) -> int:
    headers = sum(len(name.encode()) + len(value or b"") + 2 for name, value in write.headers)
    return len(write.key or b"") + len(write.value or b"") + headers + _RECORD_OVERHEAD


def _at_least_one(name: str, partitions: int) -> None:
    if partitions < 1:
        raise BrokerError(f'topic "{name}" cannot have {partitions} partitions: at least 1')
