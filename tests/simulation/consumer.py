"""Consumer: a member of a group that behaves as librdkafka's was seen to behave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from redrive.ports import Position
from redrive.record import Record, TopicPartition
from simulation.group import GroupMember
from simulation.primitives import world as running

FETCHED: Final = 40
"""Records that one fetch brings, at most."""
_NO_TIME: Final = 0


class Message:
    """What librdkafka gives: a record, or an event of its partition."""

    def __init__(
        self, place: TopicPartition, record: Record | None, offset: int, error: Any
    ) -> None:
        self._place, self._record, self._offset, self._error = place, record, offset, error

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return self._place.topic

    def partition(self) -> int:
        return self._place.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> Any:
        return None if self._record is None else self._record.key

    def value(self) -> Any:
        return None if self._record is None else self._record.value

    def headers(self) -> Any:
        return None if self._record is None else list(self._record.headers)

    def timestamp(self) -> tuple[int, int]:
        if self._record is None or self._record.timestamp is None:
            return (_NO_TIME, 0)
        return (1, self._record.timestamp)


class Fetching:
    """One assigned partition."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.ready_at = 0.0
        self.ended_at = -1
        """Where its end was told last."""
        self.failed = False
        """It met an offset that is not there: only another assignment helps."""
        self.missing_since: float | None = None


class SimConsumer:
    """`confluent_kafka.Consumer`, for as much of it as the worker uses."""

    def __init__(self, cluster: Any, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.world = running()
        self.process = self.world.current.process
        self.closed = False
        self.fenced = False
        self._told_fenced = False
        self._group = cluster.group(config["group.id"])
        self._instance = config.get("group.instance.id")
        self._on_commit: Callable[..., None] | None = config.get("on_commit")
        self._on_error: Callable[..., None] | None = config.get("error_cb")
        self._topics: set[str] | None = None
        self._leaves = False
        """It was unsubscribed, perhaps from what it is subscribed to again."""
        self._callbacks: dict[str, Any] = {}
        self._member: GroupMember | None = None
        self._joins_at = 0.0
        self._fetching: dict[TopicPartition, Fetching] = {}
        self._paused: set[TopicPartition] = set()
        self._answers: deque[tuple[Any, list[Any]]] = deque()
        self._rest: deque[Message] = deque()
        self._told_silent = False
        self._there = self._back = 0.0
        """When the last request arrives, and when its answer does."""

    # The group

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._point()
        self._topics, self._callbacks = set(topics), callbacks
        if self._leaves:
            return
        if self._member is not None and self._group.has(self._member):
            if self._member.topics != self._topics:
                self._member.topics = self._topics
                self._group.share_out()
        else:
            self._joins_at = self.world.now + self.cluster.travel()

    def unsubscribe(self) -> None:
        self._point()
        self._topics, self._leaves = None, self._member is not None
        self._rest.clear()

    def memberid(self) -> str:
        return "" if self._member is None else self._member.name

    def assignment(self) -> list[Any]:
        return [_named(place) for place in self._fetching]

    def consumer_group_metadata(self) -> Any:
        mine = self._member
        return None if mine is None else (mine, mine.generation)

    def close(self) -> None:
        self._point()
        if self.closed:
            raise RuntimeError("Consumer closed")
        self._topics = None
        self._wait_for_coordinator()
        self._let_all_go("on_revoke")
        self.world.sleep(self.cluster.travel())
        self.closed = True
        if self._member is not None and self._instance is None:
            self._group.leave(self._member)
        self._member = None

    def _wait_for_coordinator(self) -> None:
        while self.cluster.silent_until > self.world.now or (
            self.cluster.coordinator_until > self.world.now
        ):
            self.world.sleep(0.5)

    def _serve_group(self) -> None:
        """Do what the coordinator has decided, one step of it."""
        if self.fenced:
            return
        if self._topics is None or self._leaves:
            self._go()
        elif not self._is_cut_off():
            mine = self._member
            if mine is None or not self._group.has(mine):
                self._join_again(mine)
            else:
                self._follow(mine)

    def _join_again(self, mine: GroupMember | None) -> None:
        if mine is not None:
            self._member = None
            self._joins_at = self.world.now + self.cluster.travel()
            self._let_all_go("on_lost")
        elif self.world.now >= self._joins_at:
            self._member = self._group.join(self, self._instance, set(self._topics or ()))

    def _follow(self, mine: GroupMember) -> None:
        """Give up what goes to others; then take what is free."""
        gone = sorted(mine.owned - mine.target)
        if gone:
            self._callbacks["on_revoke"](self, [_named(place) for place in gone])
            mine.owned.difference_update(gone)
            self.cluster.wake_readers()
            return
        free = sorted(p for p in mine.target - mine.owned if self._group.owner(p) is None)
        if free or not mine.told:
            mine.told = True
            mine.owned.update(free)
            self._callbacks["on_assign"](self, [_named(place) for place in free])

    def _go(self) -> None:
        """Unsubscribed: let everything go, then leave the group, also as a static member."""
        self._leaves = False
        if self._member is not None:
            self._let_all_go("on_revoke")
            self._group.leave(self._member)
            self._member = None
            self._joins_at = self.world.now + self.cluster.travel()

    def _let_all_go(self, how: str) -> None:
        owned = sorted(self._fetching)
        if owned and how in self._callbacks:
            self._callbacks[how](self, [_named(place) for place in owned])
        self._fetching.clear()
        if self._member is not None:
            self._member.owned.clear()

    def _is_cut_off(self) -> bool:
        now = self.world.now
        return self.cluster.silent_until > now or self.cluster.coordinator_until > now

    # Partitions

    def incremental_assign(self, partitions: list[Any]) -> None:
        self._point()
        for one in partitions:
            place = TopicPartition(one.topic, one.partition)
            if place in self._fetching:
                raise KafkaException(KafkaError(KafkaError._CONFLICT))
            offset = one.offset if one.offset is not None and one.offset >= 0 else 0
            self._fetching[place] = Fetching(offset)
            self.cluster.history.assigned(self.process, place, offset)

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self._point()
        for one in partitions:
            place = TopicPartition(one.topic, one.partition)
            if self._fetching and place not in self._fetching:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
            self._fetching.pop(place, None)
            self._drop(place)

    def seek(self, one: Any) -> None:
        self._point()
        place = TopicPartition(one.topic, one.partition)
        found = self._fetching.get(place)
        if found is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Erroneous state"))
        found.position, found.ended_at = one.offset, -1
        found.ready_at = self.world.now + self.cluster.travel()
        self._drop(place)

    def pause(self, partitions: list[Any]) -> None:
        self._point()
        for one in partitions:
            self._paused.add(TopicPartition(one.topic, one.partition))

    def resume(self, partitions: list[Any]) -> None:
        self._point()
        for one in partitions:
            self._paused.discard(TopicPartition(one.topic, one.partition))

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._quick("_TRANSPORT", timeout)
        count = self.cluster.broker.partitions(topic)
        partitions = {number: SimpleNamespace(leader=1) for number in range(count)}
        found = {topic: SimpleNamespace(partitions=partitions)} if count else {}
        return SimpleNamespace(topics=found)

    def get_watermark_offsets(self, one: Any, timeout: float, *, cached: bool) -> tuple[int, int]:
        del cached
        self._quick("_TIMED_OUT", timeout)
        place = TopicPartition(one.topic, one.partition)
        if not self.cluster.broker.partitions(place.topic) or not self.cluster.has_leader(place):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return self.cluster.broker.bounds(place)

    def _drop(self, place: TopicPartition) -> None:
        self._rest = deque(each for each in self._rest if (each.topic(), each.partition()) != place)

    # Reading

    def poll(self, seconds: float) -> Message | None:
        self._point()
        if self.closed:
            raise RuntimeError("Consumer closed")
        world, until = self.world, self.world.now + seconds
        while True:
            self._serve()
            self._fetch()
            if self._rest:
                return self._rest.popleft()
            if world.now >= until:
                return None
            self.cluster.readers.append(world.waiter())
            world.wait(until - world.now)
            self._check()

    def consume(self, most: int, _: float) -> list[Message]:
        self._point()
        if self.world.random.random() < 0.3:
            self._serve()
        found = []
        while self._rest and len(found) < most:
            found.append(self._rest.popleft())
        return found

    def _serve(self) -> None:
        while self._answers and self._on_commit is not None:
            self._on_commit(*self._answers.popleft())
        if self.cluster.silent_until > self.world.now and not self._told_silent:
            self._told_silent = True
            if self._on_error is not None:
                self._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        elif self.cluster.silent_until <= self.world.now:
            self._told_silent = False
        if self.fenced and not self._told_fenced:
            self._told_fenced = True
            text = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
            error = KafkaError(KafkaError._FATAL, f"Fatal error: {text}", fatal=True)
            self._rest.append(Message(TopicPartition("", 0), None, -1, error))
        self._serve_group()

    def _fetch(self) -> None:
        if self._rest or self.fenced or self.cluster.silent_until > self.world.now:
            return
        cluster, now = self.cluster, self.world.now
        places = [each for each in self._fetching if each not in self._paused]
        self.world.random.shuffle(places)
        for place in places:
            found = self._fetching[place]
            if found.failed or now < found.ready_at or not cluster.has_leader(place):
                continue
            if place.partition >= cluster.broker.partitions(place.topic):
                self._tell_missing(place, found)
                continue
            self._fetch_one(place, found)
            if self._rest and self.world.random.random() < 0.6:
                break

    def _fetch_one(self, place: TopicPartition, found: Fetching) -> None:
        broker = self.cluster.broker
        start, end = broker.bounds(place)
        if not start <= found.position <= end:
            found.failed = True
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
            self._rest.append(Message(place, None, found.position, error))
            return
        most = self.world.random.randint(1, FETCHED)
        records = broker.read(place, found.position, end)[:most]
        for record in records:
            self._rest.append(Message(place, record, record.offset, None))
        if records:
            found.position = records[-1].offset + 1
            found.ready_at = self.world.now + self.cluster.travel()
        else:
            found.position = end
        if found.position == end != found.ended_at:
            found.ended_at = end
            self._rest.append(Message(place, None, end, KafkaError(KafkaError._PARTITION_EOF)))

    def _tell_missing(self, place: TopicPartition, found: Fetching) -> None:
        """As librdkafka does: not at once, metadata may only be late."""
        if found.missing_since is None:
            found.missing_since = self.world.now
        if self.world.now - found.missing_since > 30:
            found.missing_since = self.world.now
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self._rest.append(Message(place, None, found.position, error))

    # Progress

    def commit(self, offsets: list[Any], *, asynchronous: bool) -> list[Any] | None:
        self._point()
        mine, generation = self._member, 0 if self._member is None else self._member.generation
        copies = [
            _named(TopicPartition(o.topic, o.partition), o.offset, o.metadata) for o in offsets
        ]
        if mine is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
        if not asynchronous:
            self._wait_for_coordinator()
            self.world.sleep(self.cluster.travel())
            error = self._store(mine, generation, copies)
            if error is not None:
                raise KafkaException(KafkaError(error))
            return copies
        self._send(mine, generation, copies, tries=3)
        return None

    def _send(self, mine: GroupMember, generation: int, copies: list[Any], tries: int) -> None:
        cluster = self.cluster

        def arrive() -> None:
            if self._is_cut_off():
                cluster.later(0.5, arrive)
                return
            error = self._store(mine, generation, copies)
            if self.world.random.random() < cluster.lose_answers:
                self.world.faults["answer lost"] += 1
                if tries:
                    # librdkafka sends it again, whatever was sent after it.
                    self._send(mine, generation, copies, tries - 1)
                    return
                error = KafkaError._TIMED_OUT
            answer = None if error is None else KafkaError(error)
            self._back = max(self._back, self.world.now + cluster.travel())
            back = self._back - self.world.now
            cluster.later(back, lambda: self._answers.append((answer, copies)))

        # By one connection: only one that is sent again comes after others.
        self._there = max(self._there, self.world.now + cluster.travel())
        cluster.later(self._there - self.world.now, arrive)

    def _store(self, mine: GroupMember, generation: int, copies: list[Any]) -> int | None:
        """Store a commit; why not, if so."""
        if not self._group.has(mine):
            return int(KafkaError.UNKNOWN_MEMBER_ID)
        if generation not in (self._group.generation, mine.generation):
            return int(KafkaError.ILLEGAL_GENERATION)
        if self.world.random.random() < self.cluster.refuse_commits:
            self.world.faults["commit refused"] += 1
            return int(KafkaError.REBALANCE_IN_PROGRESS)
        self.cluster.store(
            self._group.name,
            {
                TopicPartition(one.topic, one.partition): Position(one.offset, one.metadata or "")
                for one in copies
                if self.cluster.broker.partitions(one.topic)
            },
        )
        return None

    # Faults

    def _point(self) -> None:
        self.world.point()

    def _check(self) -> None:
        if self.closed:
            raise RuntimeError("Consumer closed")

    def _quick(self, error: str, timeout: float) -> None:
        self._point()
        if self.cluster.silent_until > self.world.now:
            self.world.sleep(timeout)
            raise KafkaException(KafkaError(getattr(KafkaError, error)))
        self.world.sleep(self.cluster.travel() / 4)


def _named(place: TopicPartition, offset: int = -1001, metadata: str | None = None) -> Any:
    return SimpleNamespace(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        metadata=metadata,
        error=None,
    )
