"""Own houses: a task that is late writes nothing into rooms, and commits nothing."""

from __future__ import annotations

import pytest

from redrive import App, RetryPolicy
from redrive.engines.spark.own_houses import LostHouseError, OwnHouses, writer
from redrive.engines.spark.ranges import House
from redrive.errors import PublishError
from redrive.ports import Position
from redrive.processing.progress.notes import CLAIM, TOPIC, with_note
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

SOURCE = TopicPartition("in", 0)
ROOM = TopicPartition("app.retry.behind", 0)
COPY = Write(ROOM.topic, b"key", b"value", (), 0)


@pytest.fixture
def broker():
    found = MemoryBroker(VirtualClock())
    for topic in ("in", "out", ROOM.topic):
        found.create(topic, 1)
    return found


@pytest.fixture
def app():
    app = App("app", ordering="strict", retry=RetryPolicy("5m"))
    app.handler("in")(lambda record, ctx: None)
    return app


@pytest.fixture
def houses(app, broker):
    return OwnHouses(app, broker.progress("app"))


def house(claim="mine"):
    return House(claim, ((SOURCE, "source"), (ROOM, "room")))


def commit(broker, claim="mine", **ids):
    source = with_note(Position(3), TOPIC, ids.get("source", "source"))
    room = with_note(Position(1), TOPIC, ids.get("room", "room"))
    broker.progress("app").commit({SOURCE: with_note(source, CLAIM, claim), ROOM: room})


def test_a_task_begins_with_what_is_committed_in_all_of_its_house(houses, broker):
    commit(broker)
    found = houses.take([house()])
    assert {place: at.offset for place, at in found.items()} == {SOURCE: 3, ROOM: 1}
    houses.look()


@pytest.mark.parametrize(
    ("claim", "ids"), [("another", {}), ("", {}), ("mine", {"room": "of another topic"})]
)
def test_a_task_that_is_late_does_not_begin(houses, broker, claim, ids):
    commit(broker, claim, **ids)
    with pytest.raises(LostHouseError):
        houses.take([house()])


def test_a_task_finds_out_that_a_later_one_has_its_house(houses, broker):
    commit(broker)
    houses.take([house()])
    commit(broker, "later")
    with pytest.raises(LostHouseError, match="in\\[0\\] is handled by a later task"):
        houses.look()


def test_nothing_is_written_into_the_rooms_of_a_house_that_is_lost(app, houses, broker):
    commit(broker)
    houses.take([house()])
    publisher = writer(app, broker, houses)
    publisher.publish([COPY])
    commit(broker, "later")
    with pytest.raises(LostHouseError):
        publisher.hand_over([COPY])
    with pytest.raises(PublishError) as raised:  # units of work wait, and blame no record
        publisher.publish([COPY])
    assert raised.value.outage
    publisher.publish([Write("out", None, b"value", ())])
    assert (len(broker.records(ROOM.topic)), len(broker.records("out"))) == (1, 1)


def test_what_comes_late_for_a_task_that_has_ended_is_not_written(app, houses, broker):
    commit(broker)
    houses.take([house()])
    houses.leave()
    with pytest.raises(LostHouseError):
        writer(app, broker, houses).hand_over([COPY])
    houses.look()  # there are none


def test_whoever_leaves_can_wait_for_what_is_being_written(app, houses, broker, monkeypatch):
    commit(broker)
    houses.take([house()])
    seen = []

    def publish(writes):
        houses.wait_for_writes(0)
        seen.append(houses.writing)

    monkeypatch.setattr(broker, "publish", publish)
    writer(app, broker, houses).publish([COPY])
    houses.wait_for_writes(60)
    assert (seen, houses.writing) == ([1], 0)


def test_without_strict_order_nothing_is_looked_up(broker, houses):
    assert writer(App("app"), broker, houses) is broker
