"""Relays that are killed, stopped and continued; the long version is in tests/chaos."""

from __future__ import annotations

import signal

import psycopg
import pytest
from relay_kills import Rivals, kill_relays
from relaying import Post, wait_for

from redrive.record import Write


@pytest.fixture
def rivals(redrive_stack, database, redrive_prefix, redrive_topic, tmp_path):
    post = Post(redrive_stack.bootstrap, database, redrive_prefix)
    made = Rivals(post, redrive_topic("out", partitions=4), tmp_path)
    yield made
    made.end()


def test_nothing_is_lost_and_order_is_kept_when_relays_are_killed(rivals):
    kill_relays(rivals, 6000, aggregates=100, relays=2, kills=3)


def test_others_take_over_from_one_that_was_stopped_and_order_survives_its_return(rivals):
    post, topic = rivals.post, rivals.topic
    first = rivals.start_relay("--lease", "2s")
    wait_for("its shards", lambda: shards_owned(post) == 32)
    with rivals.writing(3000, 20):
        rivals.wait_for_share(3000, 0.3)
        first.process.send_signal(signal.SIGSTOP)
        rivals.start_relay("--lease", "2s")
        rivals.wait_for_share(3000, 1)
        first.process.send_signal(signal.SIGCONT)
    post.send(*(Write(topic, b"%d" % (n % 20), b"more") for n in range(200)))
    rivals.check()
    first.process.terminate()
    assert first.process.wait(60) == 0, first.output()


def shards_owned(post):
    with psycopg.connect(post.database) as connection:
        owned = connection.execute(
            "select count(*) from pg_locks join pg_stat_activity using (pid) where"
            " locktype = 'advisory' and application_name like 'redrive relay%' and mode ="
            " 'ExclusiveLock' and datname = current_database()"
        )
        return owned.fetchone()[0]
