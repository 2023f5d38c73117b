"""Debezium on the outbox, configured as documented, publishes what the relay publishes."""

from __future__ import annotations

import psycopg
import pytest
from cdc.connect import Connect, documented_sql
from relaying import Post, wait_for

from redrive.ledger.header_columns import add_header_columns
from redrive.ledger.outbox import Outbound
from redrive.record import Write


@pytest.fixture
def post(redrive_stack, database, redrive_prefix) -> Post:
    with psycopg.connect(database, autocommit=True) as owner:
        add_header_columns(owner, ["traceparent"])
        owner.execute(documented_sql())
    return Post(redrive_stack.bootstrap, database, redrive_prefix)


def shown(record):
    """What both must agree on. A header that is not there has a null value with Debezium."""
    trace = record.header("traceparent")
    return (record.topic, record.partition, record.key, record.value, record.header("id"), trace)


def sends(topic, other, round_):
    for number in range(50):
        headers = (("traceparent", b"00-%d" % number), ("other", b"\xff"))
        write = Write(topic, b"\x00\xff%d" % (number % 7), b"\xfe\x00%d" % number, headers)
        yield Outbound(write, f"{round_}-{number}")
    yield Outbound(Write(topic, b"key", None), f"{round_}-tombstone")
    yield Outbound(Write(topic, b"key", b""), f"{round_}-empty")
    yield Outbound(Write(other, "grün".encode(), "größer".encode()), f"{round_}-other")
    yield Outbound(Write(other, b"placed", b"", (), 2), f"{round_}-placed")
    yield Outbound(Write(other, None, b"without key", (), 1), f"{round_}-without-key")


@pytest.mark.timeout(900)
def test_debezium_publishes_what_the_relay_publishes(post, redrive_topic, redrive_stack, tmp_path):
    topic, other = redrive_topic("out", partitions=3), redrive_topic("other", partitions=3)
    database = psycopg.conninfo.conninfo_to_dict(post.database)["dbname"]
    before = [*sends(topic, other, "before")]
    after = [*sends(topic, other, "after")]
    post.send(*before)  # before the connector runs: it takes a snapshot first
    expected = len(before) + len(after)
    with Connect(redrive_stack, database, tmp_path):
        post.send(*after)
        wait_for(
            "Debezium's records",
            lambda: post.count(topic) + post.count(other) >= expected,
            120,
        )
    by_debezium = sorted(map(shown, [*post.arrived(topic), *post.arrived(other)]), key=repr)
    assert len(by_debezium) == expected
    begin = {name: len(post.arrived(name)) for name in (topic, other)}
    assert post.waiting() == expected  # Debezium deletes nothing: the relay can publish the same
    post.drain()
    by_relay = []
    for name in (topic, other):
        seen = {shown(record) for record in post.arrived(name)}
        assert len(post.arrived(name)) == 2 * begin[name]
        by_relay += seen
    assert sorted(by_relay, key=repr) == by_debezium
