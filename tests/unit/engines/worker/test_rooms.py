"""Partitions that follow a source partition, through rebalances and while topics come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from strict_loop import Failing, strict_app

from redrive import App, RetryPolicy
from redrive.engines.worker.assignment import Assignment
from redrive.engines.worker.reopening import Reopening
from redrive.engines.worker.rooms import Rooms
from redrive.engines.worker.subscription import Subscription
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.record import TopicPartition
from redrive.testing import Simulation
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

_DELAY_TOPIC = {"message.timestamp.type": "LogAppendTime"}
DELAY, BEHIND = "items.retry.5m", "items.retry.behind"


def place(topic: str, number: int) -> TopicPartition:
    return TopicPartition(topic, number)


class Consumer:
    """Takes note of what is assigned."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()

    def assignment(self) -> list[Any]:
        return [confluent_kafka.TopicPartition(*each) for each in self.assigned]

    def incremental_assign(self, partitions: list[Any]) -> None:
        for each in partitions:
            where = place(each.topic, each.partition)
            assert where not in self.assigned, f"{where} is assigned already"
            self.assigned.add(where)

    def incremental_unassign(self, partitions: list[Any]) -> None:
        for each in partitions:
            self.assigned.remove(place(each.topic, each.partition))

    def pause(self, partitions: list[Any]) -> None:
        self.paused |= {place(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: list[Any]) -> None:
        self.paused -= {place(each.topic, each.partition) for each in partitions}


class MemoryLog:
    """A log on a broker in memory, with what the worker asks of Kafka besides."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def topics(self, names: list[str]) -> dict[str, tuple[str, int]]:
        return {name: (name, count) for name in names if (count := self._broker.partitions(name))}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


class Bench:
    """A worker's assignment, which librdkafka calls."""

    def __init__(self, partitions: int, rooms: int | None = None) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.create("orders", partitions)
        self.broker.create(DELAY, rooms or partitions, _DELAY_TOPIC)
        self.broker.create(BEHIND, rooms or partitions)
        app = strict_app(Failing(), "5m")
        log: Any = MemoryLog(self.broker)
        self.topics = Subscription(app, self.broker.names)
        self.rooms = Rooms(app, self.topics, log, 100)
        self.consumer = Consumer()
        self.postponed: list[TopicPartition] = []
        ids = dict.fromkeys((*self.broker.names(), "items.retry.1h"), "id")
        part: Any = SimpleNamespace
        self.assignment = Assignment(
            app=app,
            topics=self.topics,
            scope=Scope(app, ids, clock=self.clock),
            dispatcher=Dispatcher(self.clock, 4, lambda *_: None),
            delivering=part(open=lambda *_: None, forget=lambda _: None, finish=lambda *_: None),
            start_offsets=part(
                fence_off=lambda _: {}, find=lambda places: dict.fromkeys(places, Position(0))
            ),
            counting=part(rebalances={"assigned": 0, "revoked": 0, "lost": 0}),
            rooms=self.rooms,
            revoke_wait=0,
            on_trouble=self._raise,
            on_postponed=self.postponed.extend,
            meanwhile=lambda: None,
        )
        self.assignment.commits = part(commit_now=lambda *_: None)

    def _raise(self, error: BaseException) -> None:
        raise error

    def assign(self, *places: TopicPartition) -> None:
        self.assignment.on_assign(
            self.consumer, [confluent_kafka.TopicPartition(*p) for p in places]
        )

    def revoke(self, *places: TopicPartition) -> None:
        self.assignment.on_revoke(
            self.consumer, [confluent_kafka.TopicPartition(*p) for p in places]
        )

    def set_aside(self, source: TopicPartition) -> None:
        """As when its records are gone, or a topic was made again."""

        def nothing(*_: Any) -> None: ...

        reopening = Reopening(
            self.consumer,  # type: ignore[arg-type]  # -- as much of it as is used
            SimpleNamespace(ask=nothing),  # type: ignore[arg-type]  # -- likewise
            self.assignment,
            SimpleNamespace(),  # type: ignore[arg-type]  # -- not asked
            on_trouble=nothing,
            on_death=nothing,
            is_over=lambda: True,
        )
        reopening.later = nothing  # type: ignore[method-assign]  # -- it does not come to that
        reopening.set_aside([self.assignment.partitions[source]])

    @property
    def read(self) -> set[TopicPartition]:
        """What is read, and has its processor."""
        assert self.consumer.assigned - self.consumer.paused == set(self.assignment.partitions)
        return set(self.assignment.partitions)


def with_rooms(*numbers: int) -> set[TopicPartition]:
    return {place(topic, n) for topic in ("orders", DELAY, BEHIND) for n in numbers}


def test_rooms_come_and_go_with_their_source_partition() -> None:
    bench = Bench(2)
    bench.assign(place("orders", 0), place("orders", 1))
    assert bench.read == with_rooms(0, 1)
    bench.revoke(place("orders", 0))
    assert bench.read == with_rooms(1)


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_rooms_go_with_a_source_partition_that_was_set_aside(how) -> None:
    bench = Bench(2)
    bench.assign(place("orders", 0), place("orders", 1))
    bench.set_aside(place("orders", 0))
    going = [confluent_kafka.TopicPartition("orders", 0)]
    if how == "revoked":
        bench.assignment.on_revoke(bench.consumer, going)
    else:
        bench.assignment.on_lost(bench.consumer, going)
    assert bench.consumer.assigned == with_rooms(1)
    bench.assign(place("orders", 0))
    assert bench.read == with_rooms(0, 1)


def test_what_the_group_assigns_though_it_is_a_room_may_go_after_its_source() -> None:
    bench = Bench(2)
    bench.assign(place(DELAY, 0))
    bench.assign(place("orders", 0))
    bench.revoke(place("orders", 0))
    bench.assign(place("orders", 0))
    assert bench.read == with_rooms(0)
    bench.revoke(place("orders", 0))
    bench.revoke(place(DELAY, 0))
    assert bench.consumer.assigned == set()


def test_a_room_that_the_group_assigns_as_it_did_before_the_order_was_strict_is_not_taken_up() -> (
    None
):
    bench = Bench(2)
    bench.assign(place("orders", 0), place(DELAY, 1))
    assert bench.read == with_rooms(0)
    assert bench.assignment.foreign == {place(DELAY, 1)}


@pytest.mark.parametrize("at_once", [True, False])
def test_what_the_group_assigns_though_it_is_a_room_goes_and_its_source_stays(at_once) -> None:
    bench = Bench(2)
    if at_once:
        bench.assign(place("orders", 0), place(DELAY, 0))
    else:
        bench.assign(place(DELAY, 0))
        bench.assign(place("orders", 0))
    assert bench.read == with_rooms(0)
    bench.revoke(place(DELAY, 0))
    assert bench.read == with_rooms(0)
    assert not bench.assignment.foreign


def test_a_partition_without_rooms_waits_for_them_and_others_are_read(caplog) -> None:
    bench = Bench(3, rooms=2)
    bench.assign(place("orders", 1), place("orders", 2))
    assert bench.read == with_rooms(1)
    assert bench.postponed == [place("orders", 2)]
    assert place("orders", 2) in bench.consumer.paused
    assert "orders[2] is not read yet" in caplog.text


def parked_by_the_next_version(bench: Bench) -> None:
    """Another version parks the head in a delay topic that is new, and is taken back."""
    bench.broker.create("items.retry.1h", bench.broker.partitions("orders"), _DELAY_TOPIC)
    app = App("items", ordering="strict", retry=RetryPolicy("1h"))

    @app.handler("orders")
    def handle(record, ctx):
        raise ConnectionError

    with Simulation(app, clock=bench.clock, broker=bench.broker) as sim:
        for value in ("a0", "a1"):
            sim.send("orders", value, key="a")
        sim.run()


def test_a_delay_topic_that_came_after_the_start_is_among_the_rooms_of_the_next_assignment() -> (
    None
):
    bench = Bench(1)
    parked_by_the_next_version(bench)
    bench.assign(place("orders", 0))
    assert bench.read == with_rooms(0) | {place("items.retry.1h", 0)}
    gate = bench.assignment.partitions[place("orders", 0)].processor.gate
    assert gate is not None
    assert gate.keys.behind(b"a") == 2


def test_those_that_were_taken_up_before_a_delay_topic_came_are_known() -> None:
    bench = Bench(2)
    bench.assign(place("orders", 0))
    parked_by_the_next_version(bench)
    assert bench.rooms.outgrown(bench.read) == []  # nobody has looked
    bench.assign(place("orders", 1))
    assert bench.rooms.outgrown(bench.read) == [place("orders", 0)]
