"""A record's whole retry life, in virtual time: when it runs, and what its headers say."""

from __future__ import annotations

import json

import pytest

from redrive import App, Bury, ConfigurationError, InPlace, Record, Retry, RetryPolicy
from redrive.envelope import parse
from redrive.record import TopicPartition, Write
from redrive.testing import MemoryBroker, Simulation, VirtualClock
from redrive.testing.virtual_clock import START

USER = (("id", b"\x00\xff"), ("id", None), ("redrive-mine", b"x"))


def failing(retry, error=RuntimeError("no"), times=1_000_000, **options):  # noqa: B008 -- one is enough
    """An app whose handler of "orders" fails so many times."""
    app = App("items", **options)
    left = [times]

    @app.handler("orders", retry=retry)
    def handle(record, ctx):
        if left[0] > 0:
            left[0] -= 1
            raise error

    return app


def times(sim):
    return [attempt.after for attempt in sim.attempts]


def hops(sim):
    """The records in the delay topics: topic, attempt, and seconds from the start until due."""
    records = [record for topic in sim.app.delay_topics for record in sim.sent(topic)]
    found = [(record.timestamp, record.topic, parse(record.headers)) for record in records]
    return [
        (topic.rpartition(".")[2], envelope.attempt, (envelope.due - START) // 1000)
        for _, topic, envelope in sorted(found, key=lambda each: (each[0], each[2].due))
    ]


def test_the_sequence_runs_at_exactly_its_times_then_is_dead_with_every_header_right():
    with Simulation(failing(RetryPolicy("5m 5m 30m 30m 30m 1h"))) as sim:
        sim.send("orders", b"\x00v", key=b"\xffk", headers=USER, timestamp=START - 7)
        sim.run_until_empty()
        assert times(sim) == ["0s", "5m", "10m", "40m", "1h10m", "1h40m", "2h40m"]
        assert [each.attempt for each in sim.attempts] == [1, 2, 3, 4, 5, 6, 7]
        assert hops(sim) == [
            ("5m", 2, 300),
            ("5m", 3, 600),
            ("30m", 4, 2400),
            ("30m", 5, 4200),
            ("30m", 6, 6000),
            ("1h", 7, 9600),
        ]
        known = {
            "redrive-app": b"items",
            "redrive-id": f"{sim.broker.topic_id('orders')}/0/0".encode(),
            "redrive-origin-topic": b"orders",
            "redrive-origin-partition": b"0",
            "redrive-origin-offset": b"0",
            "redrive-origin-timestamp": str(START - 7).encode(),
            "redrive-first-received": str(START).encode(),
            "redrive-error-type": b"RuntimeError",
            "redrive-error-message": b"no",
        }
        parked = [record for topic in sim.app.delay_topics for record in sim.sent(topic)]
        for record in parked:
            own = {"redrive-attempt", "redrive-due", "redrive-error-group", "redrive-history"}
            assert (record.key, record.value, record.headers[:3]) == (b"\xffk", b"\x00v", USER)
            headers = dict(record.headers[3:])
            assert {name: headers[name] for name in headers if name not in own} == known
        [dead] = sim.sent("items.dead")
        assert (dead.key, dead.value, dead.headers[:3]) == (b"\xffk", b"\x00v", USER)
        headers = dict(dead.headers[3:])
        assert len(headers.pop("redrive-error-group")) == 16
        assert headers.pop("redrive-history").count(b" RuntimeError") == 7
        assert headers == {
            **known,
            "redrive-attempt": b"7",
            "redrive-dead-reason": b"exhausted",
        }
        assert (sim.now, sim.parked, sim.lag) == ("2h40m", [], 0)


def test_a_handler_sees_the_same_record_at_every_attempt():
    with Simulation(failing(RetryPolicy("5m 30m"))) as sim:
        sim.send("orders", b"v", key="k", headers=USER, timestamp=START - 7)
        sim.run_until_empty()
        seen = [
            (each.topic, each.record.place, each.record.key, each.record.headers)
            for each in sim.attempts
        ]
        assert seen == [("orders", "orders[0]@0", b"k", USER)] * 3
        assert [each.record.timestamp for each in sim.attempts] == [START - 7] * 3


def test_nothing_runs_early():
    with Simulation(failing(RetryPolicy("5m"))) as sim:
        sim.send("orders", b"v")
        sim.advance("4m59.999s")
        assert times(sim) == ["0s"]
        [parked] = sim.parked
        assert (parked.topic, parked.envelope.attempt) == ("items.retry.5m", 2)
        sim.advance("1ms")
        assert times(sim) == ["0s", "5m"]


def test_every_interval_until_its_end():
    with Simulation(failing(RetryPolicy.every("10s", until="1h"))) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert len(sim.attempts) == 361
        assert times(sim)[:3] == ["0s", "10s", "20s"]
        assert times(sim)[-2:] == ["59m50s", "1h"]
        [dead] = sim.dead
        assert (dead.reason, dead.envelope.attempt) == ("expired", 361)
        sizes = {len(record.headers) for record in sim.sent("items.retry.10s")}
        assert len(sizes) == 1  # headers never grow


def test_after_hops_through_the_delays_that_exist():
    app = failing(RetryPolicy("5s 30s"), Retry("rate limited", after="37s"), times=1)
    with Simulation(app) as sim:
        sim.send("orders", b"v", headers=USER)
        sim.run_until_empty()
        assert times(sim) == ["0s", "40s"]
        assert [each.attempt for each in sim.attempts] == [1, 2]  # hops count no attempt
        assert hops(sim) == [("30s", 2, 30), ("5s", 2, 35), ("5s", 2, 40)]
        waiting = [
            parse(record.headers).not_before
            for topic in ("items.retry.30s", "items.retry.5s")
            for record in sim.sent(topic)
        ]
        assert waiting == [START + 37_000, START + 37_000, None]
        assert [outcome.kind for outcome in sim.outcomes] == ["park", "hop", "hop"]


def test_extra_delays_come_closer_to_what_was_asked_for():
    retry = RetryPolicy("5s 30s", extra_delays="1s")
    with Simulation(failing(retry, Retry("rate limited", after="37s"), times=1)) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert times(sim) == ["0s", "37s"]


def test_redeliver_to_origin_writes_the_record_back_byte_for_byte():
    app = failing(RetryPolicy("5m 5m", redeliver="origin"))
    with Simulation(app, partitions=4) as sim:
        sim.send("orders", b"\x00v", key="k", headers=USER, partition=2, timestamp=START - 7)
        sim.run_until_empty()
        first, *written = sim.broker.records("orders")
        assert [record.place for record in written] == ["orders[2]@1", "orders[2]@2"]
        for record in written:
            assert (record.key, record.value) == (first.key, first.value)
            assert (record.headers[:3], record.timestamp) == (USER, first.timestamp)
            envelope = parse(record.headers)
            assert (envelope.origin_offset, envelope.origin_partition) == (0, 2)
            assert envelope.id == f"{sim.broker.topic_id('orders')}/2/0"
        assert [parse(record.headers).attempt for record in written] == [2, 3]
        assert [(each.after, each.attempt, each.record.place) for each in sim.attempts] == [
            ("0s", 1, "orders[2]@0"),
            ("5m", 2, "orders[2]@0"),
            ("10m", 3, "orders[2]@0"),
        ]
        assert [dead.reason for dead in sim.dead] == ["exhausted"]


def test_redeliver_to_origin_checks_expiry_before_the_due_time():
    retry = RetryPolicy("5m", redeliver="origin", max_duration="6m")
    app = failing(retry)
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run()
        sim.clock.advance("6m1s")  # nobody was there to take it at its time
        sim.run()
        assert times(sim) == ["0s"]
        assert len(sim.sent("orders")) == 1
        assert [dead.reason for dead in sim.dead] == ["expired"]


@pytest.mark.parametrize(
    ("age_from", "expected"), [("receipt", ["0s", "5m", "10m"]), ("record", ["0s", "5m"])]
)
def test_age_counts_from_receipt_or_from_the_record(age_from, expected):
    retry = RetryPolicy("5m 5m 5m", max_duration="11m", age_from=age_from)
    with Simulation(failing(retry)) as sim:
        sim.send("orders", b"v", timestamp=START - 120_000)
        sim.run_until_empty()
        assert times(sim) == expected
        assert [dead.reason for dead in sim.dead] == ["expired"]


def test_discarding_must_be_asked_for_and_is_reported():
    with Simulation(failing(RetryPolicy("5m", on_exhausted="discard"))) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert (sim.dead, sim.lag, sim.parked) == ([], 0, [])
        assert [(each.kind, each.reason) for each in sim.outcomes] == [
            ("park", ""),
            ("discard", "exhausted"),
        ]


def test_bury_is_at_once_whatever_the_policy_says():
    retry = RetryPolicy("5m", first=InPlace(None), on_exhausted="discard")
    with Simulation(failing(retry, Bury("malformed order"))) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert times(sim) == ["0s"]
        [dead] = sim.dead
        assert (dead.reason, dead.envelope.error_message) == ("rejected", "malformed order")


@pytest.mark.parametrize(("key", "value"), [(None, b"v"), ("k", None), (None, None), ("", b"")])
def test_null_keys_and_null_values_go_through_delay_topics_with_fewer_partitions(key, value):
    clock = VirtualClock()
    broker = MemoryBroker(clock)
    broker.create("orders", 8)
    with Simulation(failing(RetryPolicy("5m 30m")), clock=clock, broker=broker) as sim:
        for partition in range(8):
            sim.send("orders", value, key=key, partition=partition)
        sim.run_until_empty()
        assert sim.broker.partitions("items.retry.5m") == 1
        assert len(sim.attempts) == 24
        encoded = key.encode() if isinstance(key, str) else key
        dead = [(kept.record.partition, kept.record.key, kept.record.value) for kept in sim.dead]
        assert sorted(dead) == [(partition, encoded, value) for partition in range(8)]


def test_an_update_that_comes_before_its_create_waits_without_blocking_anyone():
    app = App("items", delivery="idempotent", ordering="key")
    items = {}

    @app.handler("item.create", decode=json.loads)
    def create(record, ctx):
        ctx.db[record.data["id"]] = "NEW"

    @app.handler("item.update", decode=json.loads, retry=RetryPolicy("5m 5m 30m 30m 30m 1h"))
    def update(record, ctx):
        if record.data["id"] not in ctx.db:
            raise Retry("the item does not exist yet")
        ctx.db[record.data["id"]] = record.data["status"]
        ctx.send("item.updated", record.value, key=record.data["id"])

    with Simulation(app, db=items) as sim:
        sim.send("item.update", {"id": "7", "status": "SOLD"}, key="7")
        sim.send("item.create", {"id": "8"}, key="8")
        sim.send("item.update", {"id": "8", "status": "SOLD"}, key="8")
        sim.advance("7m")
        assert items == {"8": "SOLD"}
        sim.send("item.create", {"id": "7"}, key="7")
        sim.run_until_empty()
        assert items == {"7": "SOLD", "8": "SOLD"}
        assert [(record.key, record.value) for record in sim.sent("item.updated")] == [
            (b"8", b'{"id": "8", "status": "SOLD"}'),
            (b"7", b'{"id": "7", "status": "SOLD"}'),
        ]
        updates = [each.after for each in sim.attempts if each.record.key == b"7"]
        assert updates == ["0s", "5m", "7m", "10m"]
        assert (sim.dead, sim.parked, sim.lag) == ([], [], 0)


def test_waiting_for_ever_is_an_error_that_says_what_waits():
    with Simulation(failing(RetryPolicy(first=InPlace(None)))) as sim:
        sim.send("orders", b"v")
        with pytest.raises(AssertionError, match="still waiting after 1h"):
            sim.run_until_empty("1h")


def test_a_simulation_is_no_more_lenient_than_production():
    with pytest.raises(ConfigurationError, match="whose delivery 'at-least-once' has no database"):
        Simulation(failing(RetryPolicy()), db={})
    with pytest.raises(ConfigurationError, match="it has no handlers"):
        Simulation(App("items"))
    with pytest.raises(ConfigurationError, match="broker= needs the clock="):
        Simulation(failing(RetryPolicy()), broker=MemoryBroker(VirtualClock()))


def test_what_is_complete_behind_a_gap_is_neither_parked_nor_lag():
    app = failing(RetryPolicy(first=InPlace(None)), times=1, concurrency=2)
    with Simulation(app) as sim:
        sim.broker.gap(TopicPartition("orders", 0), 3)
        sim.broker.publish([Write("orders", b"a", b"1"), Write("orders", b"b", b"2")])
        sim.run()
        assert sim.lag == 1
        sim.run_until_empty()
        assert sim.lag == 0
        assert isinstance(sim.sent("orders")[0], Record)
