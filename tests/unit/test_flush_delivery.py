"""FlushDelivery: nothing counts before it is durable, and what is refused waits alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from redrive.delivery.flush import REFUSED_LONGEST, REFUSED_WAIT, FlushDelivery
from redrive.errors import LedgerError, PublishError
from redrive.processing.outcomes import Outcome, Report
from redrive.record import Record, Write
from redrive.testing.broker import MemoryBroker, MemoryHandover
from redrive.testing.clock import VirtualClock


class Partition:
    """Stands for a processor: it notes what was settled."""

    def __init__(self) -> None:
        self.settled: list[int] = []
        self.forgotten: list[int] = []
        self.database_is_down = False
        self.closed = False

    def settle(self, offsets: Sequence[int]) -> None:
        self.settled += offsets

    def forget(self, buried: Sequence[Outcome]) -> bool:
        if self.database_is_down:
            raise LedgerError("the database is down")
        self.forgotten += [outcome.offset for outcome in buried]
        return True


class Setup:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        for topic in ("out", "dead"):
            self.broker.create(topic)
        self.publishes: list[list[Write]] = []
        self.partition = Partition()
        self.settled_at_publish: list[list[int]] = []
        self.delivery = FlushDelivery(self, self.clock)

    def publish(self, writes: Sequence[Write]) -> None:
        self.publishes.append(list(writes))
        self.settled_at_publish.append(list(self.partition.settled))
        self.broker.publish(writes)

    def hand_over(self, writes: Sequence[Write]) -> MemoryHandover:
        try:
            self.publish(writes)
        except PublishError as error:
            return MemoryHandover(error)
        return MemoryHandover(None)

    def take(self, report: Report, partition: Partition | None = None) -> None:
        self.delivery.take(partition or self.partition, report)  # type: ignore[arg-type]  # -- stands for a processor

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.broker.records(topic)]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def report(done: Sequence[int] = (), sent: Sequence[int] = (), dead: Sequence[int] = ()) -> Report:
    made = Report()
    made.done = list(done)
    made.sent = [(offset, [write("out", offset)]) for offset in sent]
    made.outcomes = [
        Outcome("bury", offset, Record("in", 0, offset), (write("dead", offset),))
        for offset in dead
    ]
    return made


def write(topic: str, offset: int) -> Write:
    return Write(topic, None, b"%d" % offset)


def test_what_was_noted_is_written_in_its_order_and_then_settled(setup):
    setup.take(report(done=[0], sent=[1, 2]))
    setup.take(report(sent=[4], dead=[3]))
    complete = setup.delivery.pump()
    assert [outcome.offset for _, outcome in complete] == [3]
    assert setup.values("out") == [b"1", b"2", b"4"]
    assert setup.values("dead") == [b"3"]
    assert sorted(setup.partition.settled) == [0, 1, 2, 3, 4]


def test_nothing_is_settled_before_it_is_durable(setup):
    setup.take(report(sent=[1, 2], dead=[3]))
    assert setup.partition.settled == []
    setup.delivery.pump()
    assert setup.settled_at_publish == [[]]


def test_nothing_to_write_is_no_publish(setup):
    setup.take(report(done=[0, 1]))
    assert setup.delivery.pump() == []
    assert setup.partition.settled == [0, 1]
    assert setup.publishes == []
    setup.delivery.pump()
    assert setup.partition.settled == [0, 1]


def test_only_the_refused_waits(setup):
    setup.broker.refuse("dead")
    setup.take(report(done=[0], sent=[1, 2], dead=[3]))
    assert setup.delivery.pump() == []
    assert sorted(setup.partition.settled) == [0, 1, 2]
    assert setup.delivery.refused == 1
    setup.take(report(sent=[4]))
    setup.delivery.pump()
    assert sorted(setup.partition.settled) == [0, 1, 2, 4]


def test_nothing_is_forgotten_because_a_publisher_broke(setup, monkeypatch):
    def pump_in_vain() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(setup, "publish", lambda _: {}["no such thing"])
            setup.delivery.pump()

    setup.take(report(sent=[1], dead=[2]))
    setup.take(report(sent=[3]))
    with pytest.raises(KeyError):
        pump_in_vain()
    assert setup.delivery.outstanding
    setup.broker.refuse("dead", times=1)
    setup.delivery.pump()
    assert setup.partition.settled == [1, 3]
    setup.clock.advance("1m")
    with pytest.raises(KeyError):
        pump_in_vain()
    setup.delivery.pump()
    assert setup.partition.settled == [1, 3, 2]
    assert setup.values("out") == [b"1", b"3"]


def test_it_is_tried_again_later_and_then_complete(setup):
    setup.broker.refuse("dead", times=1)
    setup.take(report(dead=[3]))
    setup.delivery.pump()
    setup.delivery.pump()
    assert len(setup.publishes) == 1
    assert setup.delivery.next_due() == setup.clock.now() + REFUSED_WAIT
    setup.clock.advance(REFUSED_WAIT)
    assert [outcome.offset for _, outcome in setup.delivery.pump()] == [3]
    assert setup.partition.settled == [3]
    assert setup.values("dead") == [b"3"]
    assert setup.delivery.next_due() is None


def test_it_waits_longer_and_longer_up_to_a_limit(setup):
    setup.broker.refuse("dead")
    setup.take(report(dead=[3]))
    waits = []
    for _ in range(8):
        setup.delivery.pump()
        waits.append(setup.delivery.next_due() - setup.clock.now())
        setup.clock.set(setup.delivery.next_due())
    assert waits == [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, REFUSED_LONGEST]


def test_it_is_never_hot_however_often_it_is_pumped(setup):
    setup.broker.refuse("dead")
    setup.take(report(dead=[3]))
    for _ in range(100):
        setup.delivery.pump()
        setup.clock.advance(10)
    assert len(setup.publishes) == 1


def test_what_was_refused_is_let_go_of_when_its_partition_goes(setup):
    setup.broker.refuse("dead", times=1)
    setup.take(report(dead=[3]))
    setup.delivery.pump()
    setup.partition.closed = True
    setup.clock.advance(REFUSED_WAIT)
    assert setup.delivery.pump() == []
    assert (setup.delivery.refused, setup.values("dead")) == (0, [])


def test_those_refused_later_do_not_keep_the_first_waiting(setup):
    setup.broker.refuse("dead")
    for offset in range(20):
        setup.take(report(dead=[offset]))
        setup.delivery.pump()
        setup.clock.advance(100)
    tried = [len(writes) for writes in setup.publishes]
    assert max(tried) >= 10  # all that waited by then, in one go


def test_a_write_that_was_durable_is_not_written_twice(setup):
    setup.broker.refuse("dead", times=1)
    both = Report()
    both.outcomes = [Outcome("bury", 7, Record("in", 0, 7), (write("out", 7), write("dead", 7)))]
    setup.take(both)
    setup.delivery.pump()
    assert setup.partition.settled == []
    setup.clock.advance(REFUSED_WAIT)
    setup.delivery.pump()
    assert setup.partition.settled == [7]
    assert setup.values("out") == [b"7"]
    assert setup.values("dead") == [b"7"]


def test_partitions_do_not_mix(setup):
    other = Partition()
    setup.broker.refuse("dead")
    setup.take(report(dead=[1], sent=[2]))
    setup.take(report(sent=[1], dead=[2]), other)
    setup.delivery.pump()
    assert setup.partition.settled == [2]
    assert other.settled == [1]


def test_a_refusal_that_names_nobody_is_everybodys(setup):
    def refuse(writes: Sequence[Write]) -> None:
        raise PublishError("all of it")

    setup.broker.publish = refuse
    setup.take(report(done=[0], sent=[1], dead=[2]))
    setup.delivery.pump()
    assert setup.partition.settled == [0]
    assert setup.delivery.refused == 2


def test_dead_letters_are_forgotten_before_they_are_settled_so_that_a_replay_is_handled(setup):
    setup.partition.database_is_down = True
    setup.take(report(done=[0], dead=[1]))
    assert setup.delivery.pump() == []
    assert (setup.partition.settled, setup.partition.forgotten) == ([0], [])
    setup.partition.database_is_down = False
    setup.clock.advance(REFUSED_WAIT)
    assert [outcome.offset for _, outcome in setup.delivery.pump()] == [1]
    assert (setup.partition.settled, setup.partition.forgotten) == ([0, 1], [1])
    assert setup.values("dead") == [b"1"]
