"""Relays that are killed ten times, at full length."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from relay_kills import Rivals, kill_relays
from relaying import InThread, Post, wait_for

from redrive.ledger.migrating import migrate
from redrive.local import stack
from redrive.record import Write

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


def test_fifty_thousand_rows_of_a_thousand_keys_by_four_relays_and_ten_kills(
    redrive_stack, redrive_database, redrive_prefix, redrive_topic, tmp_path
):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
    post = Post(redrive_stack.bootstrap, redrive_database, redrive_prefix)
    rivals = Rivals(post, redrive_topic("out", partitions=12), tmp_path)
    try:
        repeated = kill_relays(rivals, 51_000, aggregates=1000, relays=4, kills=10)
    finally:
        rivals.end()
    print(f"{repeated} rows of 51,000 were published twice")


def test_a_topic_without_a_leader_does_not_hold_up_the_others(redrive_prefix):
    with stack(3, ephemeral=True) as running:
        with psycopg.connect(running.database, autocommit=True) as connection:
            migrate(connection)
        post = Post(running.bootstrap, running.database, redrive_prefix)
        *_, gone = running.brokers
        healthy, sick = f"{redrive_prefix}.healthy", f"{redrive_prefix}.sick"
        client = AdminClient({"bootstrap.servers": running.bootstrap})
        for topic, node in ((healthy, running.brokers[0].node), (sick, gone.node)):
            made = NewTopic(topic, num_partitions=1, replica_assignment=[[node]])
            client.create_topics([made])[topic].result(30)
        with InThread(post) as relay:
            post.send(Write(sick, b"k", b"before"), Write(healthy, b"k", b"before"))
            wait_for("the relay to know both topics", lambda: post.waiting() == 0)
            gone.kill()
            post.send(
                *(Write(healthy, b"%d" % n, b"%d" % n) for n in range(100)),
                Write(sick, b"k", b"waits"),
            )
            wait_for("the healthy rows", lambda: post.waiting() == 1)
            before = post.count(healthy) - 1
            for n in range(3):
                tried = relay.figures.refused[sick]
                wait_for("another try", lambda: relay.figures.refused[sick] > tried)  # noqa: B023 -- waited for here
                post.send(Write(healthy, b"later", b"%d" % n))
                wait_for("a later row", lambda: post.count(healthy) > before + 1 + n)  # noqa: B023 -- likewise
            assert post.count(healthy) == before + 4
            assert "no leader" in relay.held_back.reasons()[sick][1]
            gone.start()
            wait_for("the sick topic's row", lambda: post.waiting() == 0)
        assert post.arrived(sick)[-1].value == b"waits"
    print(f"{before} messages for 100 healthy rows beside one that waited")
    assert 100 <= before <= 200
