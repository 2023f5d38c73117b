"""Rules about parked records are looked for now and then; a run does without them."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.dead import Match, Steering
from redrive.engines.rules_watch import RulesWatch
from redrive.kafka.errors import MissingTopicError, NoLeaderError, not_allowed
from redrive.record import TopicPartition
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

TOPIC = "shop.retry.rules"
APP = App("shop")
APP.handler("orders")(print)


@pytest.fixture
def broker():
    return MemoryBroker(VirtualClock())


def steering(broker):
    clock, progress = VirtualClock(), broker.progress("shop")
    return Steering(APP, log=broker, progress=progress, publisher=broker, clock=clock, by="me")


def test_what_is_said_is_told_once_and_without_a_topic_there_is_nothing(broker):
    told = []
    watch = RulesWatch(APP, broker, every=0, on_change=told.append)
    assert watch.look() == ()
    broker.create(TOPIC)
    rule = steering(broker).hold(Match(ids=("7",)))
    assert watch.look() == watch.look() == (rule,)
    steering(broker).release([rule])
    assert watch.look() == ()
    assert told == [(rule,), ()]


def test_kafka_is_asked_now_and_then_and_the_topic_is_read_when_something_was_added(
    broker, monkeypatch
):
    broker.create(TOPIC)
    steering(broker).hold(Match(ids=("7",)))
    asked, read = [], []
    partitions, batches = broker.partitions, broker.batches
    monkeypatch.setattr(broker, "partitions", lambda topic: asked.append(1) or partitions(topic))
    monkeypatch.setattr(broker, "batches", lambda *where: read.append(1) or batches(*where))
    often = RulesWatch(APP, broker, every=0)
    for _ in range(5):
        often.look()
    assert len(read) == 1
    asked.clear()
    seldom = RulesWatch(APP, broker, every=3600)
    for _ in range(5):
        seldom.look()
    assert (len(asked), len(seldom.rules)) == (2, 1)


def test_rules_of_a_topic_that_was_recreated_are_read_again(broker):
    broker.create(TOPIC)
    steering(broker).hold(Match(ids=("7",)))
    watch = RulesWatch(APP, broker, every=0)
    watch.look()
    broker.delete(TOPIC)
    broker.create(TOPIC)
    rule = steering(broker).hold(Match(ids=("8",)))
    assert watch.look() == (rule,)


def test_who_may_not_read_them_is_told_once_and_goes_on(broker, monkeypatch, caplog):
    def refuse(topic):
        raise not_allowed(f"describe {topic}", "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE")

    monkeypatch.setattr(broker, "partitions", refuse)
    watch = RulesWatch(APP, broker, every=0)
    assert watch.look() == watch.look() == ()
    [line] = caplog.records
    assert "rules about parked records cannot be read" in line.getMessage()


def test_what_is_held_is_not_let_go_because_the_topic_seems_missing_once(broker, monkeypatch):
    broker.create(TOPIC)
    rule = steering(broker).hold(Match(ids=("7",)))
    watch = RulesWatch(APP, broker, every=0)
    assert watch.look() == (rule,)
    with monkeypatch.context() as patch:
        patch.setattr(broker, "partitions", lambda topic: 0)
        assert watch.look() == (rule,)
    assert watch.look() == (rule,)
    broker.delete(TOPIC)
    watch.look()
    assert watch.look() == ()


def test_while_their_topic_has_no_leader_those_that_are_known_count(broker, monkeypatch, caplog):
    def no_leader(place):
        raise NoLeaderError([place])

    broker.create(TOPIC)
    rule = steering(broker).hold(Match(ids=("7",)))
    watch = RulesWatch(APP, broker, every=0)
    assert watch.look() == (rule,)
    for _ in range(2):
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(broker, "bounds", no_leader)
            assert watch.look() == watch.look() == (rule,)
        [line] = caplog.records
        assert "no leader for some of shop.retry.rules[0]" in line.getMessage()
        assert watch.look() == (rule,)


def test_nothing_begins_before_it_is_known_what_is_held(broker, monkeypatch):
    def no_leader(place):
        raise NoLeaderError([place])

    broker.create(TOPIC)
    monkeypatch.setattr(broker, "bounds", no_leader)
    watch = RulesWatch(APP, broker, every=0)
    for _ in range(2):
        with pytest.raises(NoLeaderError):
            watch.look()


def test_a_topic_that_goes_while_it_is_looked_at_is_missing(broker, monkeypatch):
    def gone(place: TopicPartition):
        raise MissingTopicError(place.topic)

    broker.create(TOPIC)
    monkeypatch.setattr(broker, "bounds", gone)
    assert RulesWatch(APP, broker, every=0).look() == ()


def test_holds_of_the_old_name_are_said_once_when_a_run_begins(broker, caplog):
    broker.create(TOPIC)
    steering(broker).hold(Match(ids=("7",)))
    watch = RulesWatch(App("store", was="shop"), broker, every=0)
    watch.look()
    watch.look()
    [said] = [each.getMessage() for each in caplog.records]
    assert 'under the old name "shop" do not count for "store" (id 7)' in said


@pytest.mark.parametrize(("masked", "logged"), [((), "id alice-7"), (("name",), "id ***")])
def test_the_log_has_no_ids_of_rules_where_fields_are_masked(broker, caplog, masked, logged):
    caplog.set_level("INFO", "redrive")
    broker.create(TOPIC)
    broker.create("store.retry.rules")
    steering(broker).hold(Match(ids=("alice-7",)))
    app = App("shop", masked=masked)
    RulesWatch(app, broker, every=0).look()
    RulesWatch(App("store", was="shop", masked=masked), broker, every=0).look()
    said, left = (each.getMessage() for each in caplog.records)
    assert said == f"parked: hold of {logged} by me"
    assert f"({logged})" in left
