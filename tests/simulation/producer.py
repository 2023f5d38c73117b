"""Producer: idempotent or transactional, and what becomes of messages as librdkafka reports it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from redrive.messages import weight
from redrive.ports import Position
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import partition_for
from simulation.primitives import world as running

MISTAKE = "a mistake of ours, simulated"
MESSAGE_TIMEOUT = 30.0
"""Seconds after which a message is given up, whether or not a broker has it."""


class Report:
    """What a delivery report says of its message."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self) -> int:
        return self._partition


class Produced:
    """A message that was handed over."""

    def __init__(self, write: Write, report: Callable[..., None], at: float) -> None:
        self.write = write
        self.report = report
        self.at = at


class SimProducer:
    """`confluent_kafka.Producer`, for as much of it as redrive uses."""

    def __init__(self, cluster: Any, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.world = running()
        self._most_messages = int(config.get("batch.num.messages", 10_000))
        self._most_bytes = int(config.get("batch.size", 1_000_000))
        self._id: str | None = config.get("transactional.id")
        self._timeout = float(config.get("message.timeout.ms", MESSAGE_TIMEOUT * 1000)) / 1000
        self._epoch = 0
        self._queue: list[Produced] = []
        self._in_flight: list[Produced] = []
        self._reports: list[tuple[Produced, KafkaError]] = []
        self._fatal: KafkaError | None = None
        self._told_fatal = False
        self._waiting: list[Any] = []
        self._sending = False
        self._pending: list[Write] = []
        """What the open transaction has written."""
        self._offsets: dict[TopicPartition, Position] = {}
        self._spoilt = False
        self._group = ""
        cluster.producers.append(self)

    # Messages

    def __len__(self) -> int:
        return len(self._queue) + len(self._in_flight) + len(self._reports)

    def produce(  # noqa: PLR0917 -- as librdkafka has them
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        report: Callable[..., None],
        _again: Any = None,
        timestamp: int = 0,
        headers: Any = (),
    ) -> None:
        self.world.point()
        if self.cluster.mistakes:
            self.cluster.mistakes -= 1
            raise RuntimeError(MISTAKE)
        if self._fatal is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fatal", fatal=True))
        if len(self) > self.cluster.queue_size:
            self.world.faults["queue full"] += 1
            raise BufferError("Local: Queue full")
        where = None if partition < 0 else partition
        write = Write(topic, key, value, tuple(headers), where, timestamp or None)
        self._queue.append(Produced(write, report, self.world.now))
        if not self._sending:
            self._sending = True
            self.cluster.later(self.cluster.travel(), self._send)

    def poll(self, seconds: float) -> int:
        self.world.point()
        until = self.world.now + seconds
        while not self._reports and self.world.now < until and len(self):
            self._waiting.append(self.world.waiter())
            self.world.wait(until - self.world.now)
        reports, self._reports = self._reports, []
        for message, error in reports:
            message.report(error, Report(-1))
        if self._fatal is not None and not self._told_fatal:
            self._told_fatal = True
            raise KafkaException(self._fatal)
        return len(reports)

    def flush(self, seconds: float = -1) -> int:
        until = self.world.now + seconds if seconds >= 0 else 1e18
        while len(self) and self.world.now < until:
            self.poll(min(0.1, until - self.world.now))
        return len(self)

    def purge(self) -> None:
        purged = [*self._queue, *self._in_flight]
        self._queue, self._in_flight = [], []
        self._refuse(purged, KafkaError._PURGE_QUEUE)

    def list_topics(self, topic: str, timeout: float) -> None:
        self.world.point()
        if self.cluster.silent_until > self.world.now:
            self.world.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.world.sleep(self.cluster.travel() / 4)

    def die(self, code: int) -> None:
        """Fail for good: nothing that it holds is written."""
        self._fatal = KafkaError(code, "simulated", fatal=True)
        lost = [*self._queue, *self._in_flight]
        self._queue, self._in_flight = [], []
        self._refuse(lost, KafkaError._FATAL)

    @property
    def is_busy(self) -> bool:
        return bool(self._queue or self._in_flight)

    @property
    def is_dead(self) -> bool:
        return self._fatal is not None

    # How brokers take them

    def _send(self) -> None:
        """What is queued goes to the brokers: in batches, one for each partition."""
        cluster, now = self.cluster, self.world.now
        self._sending = False
        self._in_flight, self._queue = [*self._in_flight, *self._queue], []
        late = [each for each in self._in_flight if now - each.at > self._timeout]
        if late:
            self._in_flight = [each for each in self._in_flight if each not in late]
            self._refuse(late, KafkaError._MSG_TIMED_OUT)
        batches: dict[tuple[str, int], list[Produced]] = defaultdict(list)
        for each in self._in_flight:
            batches[self._place(each.write)].append(each)
        again = []
        for (topic, number), batch in batches.items():
            place = TopicPartition(topic, number)
            if cluster.silent_until > now or not cluster.has_leader(place):
                again += batch
                continue
            for part in self._cut(batch):
                self._take(place, part)
        self._in_flight = again
        if again:
            self._sending = True
            cluster.later(0.2, self._send)
        self._tell()

    def _cut(self, messages: list[Produced]) -> Iterator[list[Produced]]:
        """In batches as large as they may be; the first message of one always fits in."""
        batch: list[Produced] = []
        for each in messages:
            size = weight([one.write for one in [*batch, each]])
            if batch and (size > self._most_bytes or len(batch) >= self._most_messages):
                yield batch
                batch = []
            batch.append(each)
        if batch:
            yield batch

    def _place(self, write: Write) -> tuple[str, int]:
        count = self.cluster.broker.partitions(write.topic)
        if write.partition is not None or not count:
            return write.topic, write.partition or 0
        if write.key is None:
            return write.topic, 0
        return write.topic, partition_for(write.key, count)

    def _take(self, place: TopicPartition, batch: list[Produced]) -> None:
        cluster = self.cluster
        reason = cluster.refusal_of(place.topic)
        if not cluster.broker.partitions(place.topic):
            reason = "UNKNOWN_TOPIC_OR_PART"
        elif place.partition >= cluster.broker.partitions(place.topic):
            reason = "_UNKNOWN_PARTITION"
        if reason is not None:
            self._refuse(batch, getattr(KafkaError, reason))
            return
        bad = [(each, why) for each in batch if (why := self._why_not(each.write)) is not None]
        if bad:
            self._refuse_company(batch, dict(bad))
            return
        lost = self.world.random.random() < cluster.lose_answers and self._id is None
        writes = [each.write._replace(partition=place.partition) for each in batch]
        if self._id is None:
            cluster.append(writes)
        else:
            self._pending += writes
        if lost:
            # Written, but its answer is late: an idempotent producer never learns of it.
            self.world.faults["acknowledgement lost"] += 1
            self._refuse(batch, KafkaError._MSG_TIMED_OUT)

    def _why_not(self, write: Write) -> str | None:
        return self.cluster.spoilt.get(write.value) if write.value is not None else None

    def _refuse_company(self, batch: list[Produced], bad: dict[Produced, str]) -> None:
        """Refuse a batch for one of its messages: all for its size; else it is said for which."""
        self.world.faults["batch refused for one of its messages"] += 1
        large = "MSG_SIZE_TOO_LARGE" in bad.values()
        for each in batch:
            code = KafkaError.MSG_SIZE_TOO_LARGE
            if not large:
                other = KafkaError._INVALID_DIFFERENT_RECORD
                code = getattr(KafkaError, bad[each]) if each in bad else other
            self._refuse([each], code)

    def _refuse(self, batch: list[Produced], code: int) -> None:
        self._spoilt = self._spoilt or bool(batch)
        self._reports += [(each, KafkaError(code)) for each in batch]
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self.world.wake(task)

    # Transactions

    def init_transactions(self, timeout: float) -> None:
        self._call(timeout)
        self._epoch = self.cluster.take_over(self._id)

    def begin_transaction(self) -> None:
        self.world.point()
        self._check_owner()
        self._pending, self._offsets, self._spoilt = [], {}, False

    def send_offsets_to_transaction(self, offsets: Any, membership: Any, timeout: float) -> None:
        self._call(timeout)
        self._check_owner()
        member, generation = membership if membership is not None else (None, 0)
        if member is not None:
            group = member.consumer._group
            if not group.has(member):
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
            if generation != member.generation:
                raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
            self._group = group.name
        self._offsets = {
            TopicPartition(one.topic, one.partition): Position(one.offset, one.metadata or "")
            for one in offsets
        }

    def commit_transaction(self, timeout: float) -> None:
        if self.flush(timeout):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._call(timeout)
        self._check_owner()
        if self._spoilt:
            raise KafkaException(KafkaError(KafkaError._STATE))
        chance = self.world.random.random()
        if chance < self.cluster.lose_answers / 2:
            self.world.faults["transaction not committed in time"] += 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.cluster.commit(self._group, self._pending, self._offsets)
        self._pending, self._offsets = [], {}
        if chance < self.cluster.lose_answers:
            self.world.faults["transaction committed, answer lost"] += 1
            self._epoch = -1  # the next word of it is refused
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def abort_transaction(self, timeout: float) -> None:
        self.purge()
        self._reports.clear()
        self._call(timeout)
        self._check_owner()
        self._pending, self._offsets, self._spoilt = [], {}, False

    def _call(self, timeout: float) -> None:
        world, cluster = self.world, self.cluster
        world.point()
        self._check_alive()
        until = world.now + timeout
        world.sleep(cluster.travel())
        while cluster.silent_until > world.now or cluster.coordinator_until > world.now:
            if world.now >= until:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            world.sleep(min(0.5, until - world.now))

    def _check_alive(self) -> None:
        if self._fatal is not None:
            raise KafkaException(self._fatal)

    def _check_owner(self) -> None:
        self._check_alive()
        if self.cluster.epochs.get(self._id) != self._epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
