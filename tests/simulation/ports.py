"""What a process asks of Kafka besides its consumer and its producers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from redrive.errors import PublishError
from redrive.kafka.errors import BrokerError, publish_error
from redrive.kafka.room import Room
from redrive.ports import Position
from redrive.record import Record, TopicPartition
from simulation.cluster import Cluster
from simulation.consumer import SimConsumer
from simulation.primitives import Running, time_ns
from simulation.producer import SimProducer


class Connected:
    """The cluster that runs at present."""

    cluster: Cluster


def cluster() -> Cluster:
    return Connected.cluster


def make_handle(make: Any, config: Mapping[str, Any], on_error: Any = None) -> Any:
    kind = {"Consumer": SimConsumer, "Producer": SimProducer}[make.__name__]
    return kind(cluster(), {**config, "error_cb": on_error})


class SimAdmin:
    """`Admin`: nobody asks it for more than to be there."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


class SimTopics:
    """`KafkaTopics`, of brokers with no settings of their own."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def visible_settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        cluster().ask("read settings")
        return {name: {} for name in names}


class SimLog:
    """`KafkaLog`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._cluster = cluster()
        self._broker = self._cluster.broker

    def names(self, prefix: str = "") -> list[str]:
        self._cluster.ask("list topics")
        return self._broker.names(prefix)

    def partitions(self, topic: str) -> int:
        self._cluster.ask("describe a topic")
        return self._broker.partitions(topic)

    def topic_id(self, topic: str) -> str:
        self._cluster.ask("describe a topic")
        return self._broker.topic_id(topic)

    def topics(self, names: Collection[str]) -> dict[str, tuple[str, int]]:
        self._cluster.ask("describe topics")
        there = [name for name in names if self._broker.partitions(name)]
        return {
            name: (self._broker.topic_id(name), self._broker.partitions(name)) for name in there
        }

    def leaderless(self, names: Collection[str]) -> set[TopicPartition]:
        self._cluster.ask("describe topics")
        return {
            place
            for place in self._cluster.leaderless
            if place.topic in names and not self._cluster.has_leader(place)
        }

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return self.all_bounds([partition])[partition]

    def all_bounds(
        self, partitions: Collection[TopicPartition], *, wait_for_leaders: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        self._cluster.ask("list offsets")
        self._cluster.check_leaders(partitions, 30.0 if wait_for_leaders else 0.0)
        return {place: self._broker.bounds(place) for place in partitions}

    def undecided(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        del partitions
        self._cluster.ask("list transactions")
        return set()

    def appended_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        self._cluster.ask("list offsets")
        self._cluster.check_leaders(list(times), 30.0)
        return self._broker.appended_since(times)

    def read(self, partition: TopicPartition, start: int, end: int) -> list[Record]:
        self._cluster.ask("read")
        return self._broker.read(partition, start, end)

    def batches(
        self, partition: TopicPartition, start: int, end: int, **_: Any
    ) -> Iterator[list[Record]]:
        self._cluster.ask("read")
        yield from self._broker.batches(partition, start, end)

    def close(self) -> None: ...


class SimProgress:
    """`KafkaProgress`."""

    def __init__(self, _: Any, group: str, **__: Any) -> None:
        self._cluster = cluster()
        self._group = group

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        self._cluster.ask("read progress", coordinator=True)
        return self._cluster.broker.progress(self._group).committed(partitions)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        self._cluster.ask("commit progress", coordinator=True)
        if self._cluster.group(self._group).members:
            raise BrokerError(f"group {self._group} has active members")
        self._cluster.store(self._group, dict(positions))


def store(*_: Any) -> Any:
    """The database of an app whose delivery has one."""
    return cluster().database.connect()


def members_of(_: Any, group: str) -> Any:
    cluster().ask("look at a group", coordinator=True)
    return cluster().group(group).described()


def refusing(_: Any, topics: Collection[str]) -> dict[str, PublishError]:
    here = cluster()
    here.ask("describe topics", 2.0)
    found: dict[str, PublishError] = {}
    for topic in sorted(topics):
        count = here.broker.partitions(topic)
        if not count:
            found[topic] = publish_error(topic, None, "UNKNOWN_TOPIC_OR_PART")
        elif not all(here.has_leader(TopicPartition(topic, number)) for number in range(count)):
            found[topic] = publish_error(topic, None, "LEADER_NOT_AVAILABLE")
        elif here.refusal_of(topic) == "TOPIC_AUTHORIZATION_FAILED":
            found[topic] = publish_error(topic, None, "TOPIC_AUTHORIZATION_FAILED")
    return found


def room_of(_: str) -> Room:
    """One for each simulated process."""
    process: Any = Running.world.current.process
    if not hasattr(process, "room"):
        process.room = Room()
    return process.room


class SimWallClock:
    """`WallClock`, of the process that asks."""

    def now(self) -> int:
        return time_ns() // 1_000_000

    def was_set(self) -> int:
        return Running.world.current.process.clock_ahead


def nothing(*_: Any, **__: Any) -> None: ...
