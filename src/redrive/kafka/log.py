"""KafkaLog: reads exact ranges of one topic-partition, committed records only.

librdkafka shows neither transaction markers nor aborted records, and does not move its position
over them. So a range ends with a message at or past its end, or with the partition-end event at or
past its end: never by counting, and never by asking for the position.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import confluent_kafka
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka.admin import AdminClient

from redrive.config import Settings
from redrive.kafka import warm_up
from redrive.kafka.admin import Admin, is_passing
from redrive.kafka.config import consumer_config, make_handle
from redrive.kafka.errors import (
    BrokerError,
    MissingTopicError,
    NoLeaderError,
    OffsetsGoneError,
    ends_before,
    is_not_allowed,
    not_allowed,
    silent,
)
from redrive.kafka.rdkafka import OffsetSpec, TopicDescription
from redrive.kafka.records import records_of
from redrive.numbers import counted
from redrive.record import Record, TopicPartition
from redrive.tuning import (
    BROKER_PATIENCE,
    READ_AT_ONCE,
    READ_SILENCE,
    SETTLE_EVERY,
    TRANSACTION_TIMEOUT,
)

Batches: TypeAlias = Generator[list[Record], float | None]
"""Records as they are read, batch by batch; send() sets how long to wait for the next one."""

_error: Final = Message.error
_WITHOUT_LEADER: Final = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION")


class KafkaLog:
    """The log of a cluster, read with a group id whose group it never joins.

    Consumers are created when first needed, one per range that is read concurrently, and kept: a
    new one costs more than a range.
    """

    def __init__(
        self,
        settings: Settings,
        group: str,
        *,
        admin: Admin | None = None,
        patience: float = BROKER_PATIENCE,
    ) -> None:
        self._config = consumer_config(settings, group)
        self._admin = admin or Admin(settings, patience=patience)
        self._patience = patience
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()

    def names(self, prefix: str = "") -> list[str]:
        """The topics whose names begin with that."""
        return [name for name in self._admin.names() if name.startswith(prefix)]

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        try:
            return len(self._admin.topic(topic).partitions)
        except MissingTopicError:
            return 0

    def topic_id(self, topic: str) -> str:
        """The topic's id, written as Kafka's own tools write it."""
        return _id_of(self._admin.topic(topic))

    def topics(self, names: Collection[str]) -> dict[str, tuple[str, int]]:
        """Ids and partition counts of many topics, in one request."""
        found = self._admin.topics(names)
        return {name: (_id_of(one), len(one.partitions)) for name, one in found.items()}

    def leaderless(self, names: Collection[str]) -> set[TopicPartition]:
        """The partitions of these topics that currently have no leader, and cannot be read."""
        return {
            TopicPartition(name, one.id)
            for name, topic in self._admin.topics(names).items()
            for one in topic.partitions
            if one.leader is None
        }

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first readable offset and the last stable offset: not past open transactions."""
        return self.all_bounds([partition])[partition]

    def all_bounds(
        self, partitions: Collection[TopicPartition], *, wait_for_leaders: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The bounds of many partitions, in one request; NoLeaderError if one has no leader.

        Without waiting, it is raised at once, even while a new leader is being elected.
        """
        if not partitions:
            return {}
        passing = () if wait_for_leaders else _WITHOUT_LEADER
        try:
            return self._admin.ask(
                f"ask for the bounds of {', '.join(map(str, partitions))}",
                lambda client: _list_bounds(client, partitions, passing),
            )
        except _LeaderlessError:
            self._check_there(partitions)
            raise NoLeaderError(partitions) from None

    def undecided(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """The partitions with records that cannot be read yet: their transactions are still open.

        Also if a transaction is already committed, but not yet in all of its partitions.
        """
        if not partitions:
            return set()
        return self._admin.ask(
            f"list the open transactions in {', '.join(map(str, partitions))}",
            lambda client: _list_undecided(client, partitions),
        )

    def settle(self, partition: TopicPartition) -> None:
        """Wait until all that was written so far can be read: until no older transaction is open.

        Whoever has left one open holds up readers until it is taken over, or its time is up.
        """
        _, end = self._admin.ask(
            f"ask for the end of {partition}", lambda client: _list_ends(client, [partition])
        )[partition]
        until = time.monotonic() + self._patience + TRANSACTION_TIMEOUT / 1000
        while self.bounds(partition)[1] < end:
            if time.monotonic() >= until:
                raise BrokerError(
                    f"an open transaction blocks {partition} before offset {end}: try again later"
                )
            time.sleep(SETTLE_EVERY)

    def appended_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """For each partition, offset and time of the first record appended at or after the time.

        None if there is none yet. Exact for topics with log-append time.
        """
        if not times:
            return {}
        return self._admin.ask(
            f"look up times in {', '.join(map(str, times))}",
            lambda client: _list_since(client, times),
        )

    def read(self, partition: TopicPartition, start: int, end: int) -> list[Record]:
        """The records with start <= offset < end; all of them, or an error."""
        return [record for batch in self.batches(partition, start, end) for record in batch]

    def batches(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        size: int = READ_AT_ONCE,
        wait: float = READ_SILENCE,
    ) -> Batches:
        """The same as they arrive, so that a large range need not be held in memory.

        A batch is empty if nothing arrived for `wait` seconds, or for as long as was sent for the
        next one. A caller that passes 0 has other things to do, and decides by itself how long a
        silence may last.
        """
        if start >= end:
            return
        reader = self._take_reader(partition.topic)
        consumer = reader.consumer
        consumer.assign([_kafkas(partition, start)])
        reading = _Reading(partition, end, start)
        try:
            yield from self._batches(consumer, reading, size, wait)
        finally:
            # An assigned consumer would keep fetching, for nobody.
            consumer.unassign()
            if reading.silence >= READ_SILENCE:
                consumer.close()  # after an outage one stayed silent for a minute: the next is new
            else:
                with self._lock:
                    self._idle.append(reader)

    def close(self) -> None:
        """Close the consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.consumer.close()

    def _batches(self, consumer: Consumer, reading: _Reading, size: int, wait: float) -> Batches:
        partition, end = reading.partition, reading.end
        sent: float | None = None
        while True:
            messages = _next(consumer, size, wait if sent is None else sent)
            batch, reading.reached, progressed = _sort_out(
                messages, partition, end, reading.reached
            )
            if progressed:
                reading.silent_since = None
            elif reading.silent_since is None:
                # Not since the last batch: a slow reader is not a silent broker.
                reading.silent_since, reading.asked = time.monotonic() - wait, 0.0
            if wait:
                self._check_silence(reading)
            if batch or not progressed:
                sent = yield batch
            if reading.reached >= end:
                return

    def _check_silence(self, reading: _Reading) -> None:
        silence = reading.silence
        if silence >= reading.asked + READ_SILENCE:
            reading.asked = silence
            self._check_there([reading.partition])
        if silence >= self._patience:
            if self.bounds(reading.partition)[1] < reading.end:
                raise ends_before(reading.partition, reading.reached, reading.end)
            raise silent(reading.partition, reading.reached, reading.end, silence)

    def _check_there(self, partitions: Collection[TopicPartition]) -> None:
        for topic, number in partitions:
            count = len(self._admin.topic(topic).partitions)
            if not 0 <= number < count:
                raise BrokerError(
                    f"{topic}[{number}] does not exist: the topic has {counted(count, 'partition')}"
                )

    def _take_reader(self, topic: str) -> _Reader:
        """A consumer that already knows the topic, if there is one."""
        with self._lock:
            idle = self._idle
            known = next((each for each in reversed(idle) if topic in each.topics), None)
            if known is not None:
                idle.remove(known)
                return known
            reader = idle.pop() if idle else None
        if reader is None:
            reader = _Reader(make_handle(Consumer, self._config), set())
        reader.meet(topic)
        return reader


class _Reader(NamedTuple):
    """A consumer, and the topics whose leaders it has looked up."""

    consumer: Consumer
    topics: set[str]

    def meet(self, topic: str) -> None:
        """Look up the leaders of the topic."""
        if warm_up.meet(self.consumer, topic):
            self.topics.add(topic)


def _id_of(topic: TopicDescription) -> str:
    # librdkafka writes plain base64, Kafka the URL-safe variant.
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


@dataclass
class _Reading:
    """How far a range has been read, and since when nothing has arrived."""

    partition: TopicPartition
    end: int
    reached: int
    silent_since: float | None = None
    asked: float = 0.0
    """How long the silence was when the topic was last checked."""

    @property
    def silence(self) -> float:
        """Seconds of silence."""
        return 0.0 if self.silent_since is None else time.monotonic() - self.silent_since


class _LeaderlessError(Exception):
    """librdkafka returns the same error for a missing topic, partition or leader."""


def _list_bounds(
    client: AdminClient, partitions: Collection[TopicPartition], no_leader: Collection[str]
) -> dict[TopicPartition, tuple[int, int]]:
    asked = [
        client.list_offsets(
            {_kafkas(partition): spec for partition in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]  # -- theirs
    ]
    try:
        first, last = (
            {(key.topic, key.partition): _answer(future).offset for key, future in answers.items()}
            for answers in asked
        )
    except KafkaException as raised:
        if raised.args[0].name() in ("_NOENT", *no_leader):
            raise _LeaderlessError from None
        raise
    return {partition: (first[partition], last[partition]) for partition in partitions}


def _answer(future: Future[Any]) -> Any:
    """The answer to one question; while a broker restarts, librdkafka has some without an offset.

    As if the log ended there: it would be taken for data loss.
    """
    answer = future.result()
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
    return answer


def _list_undecided(
    client: AdminClient, partitions: Collection[TopicPartition]
) -> set[TopicPartition]:
    ends = _list_ends(client, partitions)
    return {place for place, (stable, high) in ends.items() if stable < high}


def _list_ends(
    client: AdminClient, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Up to where each partition can be read, and up to where it is written."""
    latest = {_kafkas(partition): OffsetSpec.latest() for partition in partitions}  # type: ignore[no-untyped-call]  # -- theirs
    levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    # One after the other: if something is written in between, it takes another look.
    stable, high = (
        {
            TopicPartition(key.topic, key.partition): _answer(future).offset
            for key, future in client.list_offsets(latest, isolation_level=level).items()
        }
        for level in levels
    )
    return {place: (end, high[place]) for place, end in stable.items()}


def _list_since(
    client: AdminClient, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int] | None]:
    asked = client.list_offsets(
        {_kafkas(place): OffsetSpec.for_timestamp(max(time, 0)) for place, time in times.items()},
        isolation_level=IsolationLevel.READ_COMMITTED,
    )
    found: dict[TopicPartition, tuple[int, int] | None] = {}
    for key, future in asked.items():
        answer = _answer(future)
        at = None if answer.offset < 0 else (answer.offset, answer.timestamp)
        found[TopicPartition(key.topic, key.partition)] = at
    return found


def _next(consumer: Consumer, size: int, wait: float) -> list[Message]:
    """Wait for one message, and take what else is there: `consume` would wait for a full batch."""
    message = consumer.poll(wait)
    if message is None:
        return []
    return [message, *consumer.consume(size - 1, 0)] if size > 1 else [message]


def _sort_out(
    messages: list[Message], partition: TopicPartition, end: int, reached: int
) -> tuple[list[Record], int, bool]:
    """The records before the end, how far the log was seen, and whether anything was new."""
    if messages and not any(map(_error, messages)) and (messages[-1].offset() or 0) < end:
        batch = records_of(messages, partition)  # only records, as nearly always
        return batch, batch[-1].offset + 1, True
    batch = []
    before = reached
    for message in messages:
        error = message.error()
        if error is None:
            offset = message.offset() or 0
            if offset >= end:
                return batch, end, True
            batch += records_of([message], partition)
            reached = offset + 1
        elif error.name() == "_PARTITION_EOF":
            # Right after a leader change the log may seem shorter than it is: not the end yet.
            reached = max(reached, message.offset() or 0)
        else:
            _raise_unless_passing(error, partition, reached)
    return batch, reached, reached > before


def _raise_unless_passing(error: KafkaError, partition: TopicPartition, reached: int) -> None:
    if error.name() == "_AUTO_OFFSET_RESET":
        raise OffsetsGoneError(partition, reached)
    if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}:
        raise MissingTopicError(partition.topic)
    if error.name() == "GROUP_AUTHORIZATION_FAILED":
        return  # a consumer looks for its group's coordinator; reading does not need one
    if is_not_allowed(error.name()):
        raise not_allowed(f"read {partition}", error.name(), f"READ on topic {partition.topic}")
    if error.fatal() or not (is_passing(error) or error.retriable()):
        raise BrokerError(
            f"cannot read {partition} at offset {reached} ({error.name()}: {error.str()}): run"
            " `redrive doctor`"
        )


def _kafkas(partition: TopicPartition, offset: int = 0) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
