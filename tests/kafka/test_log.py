"""Ranges with real transactions in them: markers, aborted records, transactions still open."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace

import pytest
from mock_cluster import MockCluster

from redrive.config import load_settings
from redrive.kafka import log as kafka_log
from redrive.kafka.config import make_handle
from redrive.kafka.errors import BrokerError
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.record import TopicPartition, Write


def values(records):
    return [record.value for record in records]


@pytest.fixture
def publish(settings):
    publisher = KafkaPublisher(settings)

    def publish(place, *values):
        publisher.publish(
            [Write(place.topic, None, value, (), place.partition) for value in values]
        )

    yield publish
    publisher.close()


def test_a_range_that_ends_in_a_marker(log, place, transaction, wait_for_end):
    transaction(place, b"0", b"1").commit_transaction()
    wait_for_end(place, 3)
    assert values(log.read(place, 0, 3)) == [b"0", b"1"]
    assert values(log.read(place, 1, 3)) == [b"1"]
    assert log.read(place, 2, 3) == []


def test_a_range_of_aborted_records_only(log, place, publish, transaction, wait_for_end):
    publish(place, b"before")
    transaction(place, *[b"aborted"] * 500).abort_transaction()
    wait_for_end(place, 502)
    assert log.read(place, 1, 502) == []
    assert log.read(place, 100, 400) == []
    publish(place, b"after")
    assert values(log.read(place, 0, 503)) == [b"before", b"after"]
    assert log.read(place, 1, 502) == []


def test_an_open_transaction_is_not_read_past(log, place, publish, transaction, wait_for_end):
    publish(place, b"before")
    open_one = transaction(place, b"open")
    publish(place, b"after")
    assert log.bounds(place) == (0, 1)
    assert values(log.read(place, 0, 1)) == [b"before"]
    open_one.commit_transaction()
    wait_for_end(place, 4)
    assert values(log.read(place, 0, 4)) == [b"before", b"open", b"after"]


def test_records_of_open_transactions_cannot_be_had_by_asking_for_them(
    settings, place, transaction, redrive_prefix
):
    transaction(place, b"open")
    log = KafkaLog(settings, redrive_prefix, patience=1)
    with pytest.raises(BrokerError, match="ends at offset 0, before the requested offset 1"):
        log.read(place, 0, 1)
    log.close()


def test_lots_are_given_as_they_come(log, place, publish):
    publish(place, *(b"%d" % number for number in range(2500)))
    batches = list(log.batches(place, 100, 2400, size=300))
    assert max(map(len, batches)) <= 300
    assert [int(value) for batch in batches for value in values(batch)] == list(range(100, 2400))


def test_ranges_can_be_left_early_and_read_at_the_same_time(log, place, publish):
    publish(place, *(b"%d" % number for number in range(100)))
    first = log.batches(place, 0, 100, size=10)
    second = log.batches(place, 50, 100, size=10)
    assert values(next(first))[0] == b"0"
    assert values(next(second))[0] == b"50"
    first.close()
    assert values(log.read(place, 99, 100)) == [b"99"]
    assert values(next(second))[-1:] != [b"99"]
    second.close()


def test_bounds_of_many_partitions_at_once(log, redrive_topic, publish):
    topic = redrive_topic(partitions=3)
    places = [TopicPartition(topic, number) for number in range(3)]
    publish(places[1], b"a", b"b")
    assert log.all_bounds(places) == {places[0]: (0, 0), places[1]: (0, 2), places[2]: (0, 0)}
    assert log.all_bounds([]) == {}


def test_the_topic_id_is_what_kafkas_own_tools_say(log, place, redrive_stack):
    # 22 characters of base64 for addresses.
    topic_id = log.topic_id(place.topic)
    assert len(topic_id) == 22
    assert topic_id.replace("-", "").replace("_", "").isalnum()


def test_nobody_there_is_a_clear_error(nowhere):
    log = KafkaLog(nowhere, "g", patience=0)
    with pytest.raises(BrokerError, match="no broker answers: check the address"):
        log.bounds(TopicPartition("t", 0))


class Silent:
    """A consumer that never hears anything, as some do after an outage; it takes its time."""

    def __init__(self) -> None:
        self.closed = False
        self.waited = 0.0

    def list_topics(self, _topic, timeout): ...

    def assign(self, _places):
        pass

    def unassign(self):
        pass

    def poll(self, _seconds):
        self.waited += 20

    def close(self):
        self.closed = True


def test_a_range_whose_broker_is_away_keeps_no_other_from_being_read():
    """A task asks each of its ranges for what has arrived, and waits for none of them."""
    cluster = MockCluster(brokers=2)
    cluster.create("in", 1, 2)
    settings = load_settings({"bootstrap": cluster.bootstrap}, environ={})
    writes = [Write("in", b"k", b"%d" % n, (), n % 2) for n in range(10)]
    KafkaPublisher(settings).publish(writes)
    log, answered = KafkaLog(settings, "test"), TopicPartition("in", 0)
    cluster.set_down(2)
    silent = log.batches(TopicPartition("in", 1), 0, 5, wait=0)
    assert next(silent) == []
    assert [int(record.value) for record in log.read(answered, 0, 5)] == [0, 2, 4, 6, 8]
    assert next(silent) == []
    cluster.set_up(2)
    found = []
    while len(found) < 5:
        found += silent.send(0.1) or next(silent)
    assert [int(record.value) for record in found] == [1, 3, 5, 7, 9]
    silent.close()


def test_a_consumer_that_heard_nothing_is_not_used_again(
    settings, admin, place, publish, monkeypatch
):
    silent = Silent()
    made = [silent]  # the first; all others are real
    monkeypatch.setattr(
        kafka_log, "make_handle", lambda *given: made.pop() if made else make_handle(*given)
    )
    clock = SimpleNamespace(monotonic=lambda: monotonic() + silent.waited)
    monkeypatch.setattr(kafka_log, "time", clock)
    log = KafkaLog(settings, "silent", admin=admin, patience=20)
    publish(place, b"here")
    with pytest.raises(BrokerError, match="nothing could be read at offset 0"):
        log.read(place, 0, 1)
    assert silent.closed
    assert [record.value for record in log.read(place, 0, 1)] == [b"here"]
    log.close()
