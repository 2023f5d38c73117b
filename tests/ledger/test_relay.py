"""The relay: everything that was committed is published, in order, and nothing else."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from itertools import count, islice
from types import SimpleNamespace

import psycopg
import pytest
from mock_cluster import MockCluster
from relaying import InThread, Post, Process, grow_limit, wait_for

from redrive.config import load_settings
from redrive.errors import ConfigurationError, LedgerError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ledger import admission
from redrive.ledger.admission import out_of_reach
from redrive.ledger.held_back import Taken
from redrive.ledger.names import BUCKETS
from redrive.ledger.outbox import Outbound, aggregate_number
from redrive.ledger.publishing import KafkaAwayError, Publishing, Refusal
from redrive.ledger.relay import Relay
from redrive.ledger.relay_metrics import RelayCollector, checks
from redrive.record import Write
from redrive.serving import served


@pytest.fixture
def post(redrive_stack, database, redrive_prefix) -> Post:
    return Post(redrive_stack.bootstrap, database, redrive_prefix)


@pytest.fixture
def topic(redrive_topic) -> str:
    return redrive_topic("out", partitions=3)


@pytest.fixture
def impatient(monkeypatch):
    """What was refused is tried again soon."""
    monkeypatch.setattr("redrive.ledger.held_back.REFUSED_ROW_LONGEST_WAIT", 1.0)


def values(post, topic):
    return sorted(record.value for record in post.arrived(topic))


def apart_from(write):
    """Messages for other keys that do not share a lock with this one's."""
    bucket = aggregate_number(write) % BUCKETS
    others = (Write(write.topic, b"soon-%d" % number, b"soon") for number in count())
    return (one for one in others if aggregate_number(one) % BUCKETS != bucket)


def test_a_row_becomes_the_record_byte_for_byte(post, topic):
    headers = (("a", b"\xff\x00"), ("a", None), ("id", b"somebody else's"))
    post.send(
        Outbound(Write(topic, b"\x00k", b"\xff\x00v", headers, 2), "mine"),
        Outbound(Write(topic, None, None, (), 1), "tombstone"),
    )
    post.drain()
    last, first = post.arrived(topic)
    assert (first.partition, first.key, first.value) == (2, b"\x00k", b"\xff\x00v")
    assert first.headers == (("id", b"mine"), ("a", b"\xff\x00"), ("a", None))
    assert (last.partition, last.key, last.value) == (1, None, None)
    assert last.headers == (("id", b"tombstone"),)
    assert post.waiting() == 0


def test_order_per_key_is_kept(post, topic):
    for lot in range(20):
        post.send(*(Write(topic, b"%d" % (n % 9), b"%d" % (lot * 100 + n)) for n in range(100)))
    relay = post.drain()
    arrived = post.arrived(topic)
    assert len(arrived) == 2000
    for key in range(9):
        numbers = [int(record.value) for record in arrived if record.key == b"%d" % key]
        assert numbers == sorted(numbers)
    assert relay.figures.published == {topic: 2000}


def test_keys_are_where_javas_clients_put_them(post, redrive_topic):
    topic = redrive_topic("out", partitions=12)
    post.send(Write(topic, b"21", b""), Write(topic, b"foobar", b""))
    post.drain()
    # Known places of murmur2: the hash is Kafka's own, of these very bytes.
    by_key = {record.key: record.partition for record in post.arrived(topic)}
    assert by_key == {b"21": (-973932308 & 0x7FFFFFFF) % 12, b"foobar": -790332482 % 2**31 % 12}


def test_what_is_rolled_back_is_never_published(post, topic):
    with psycopg.connect(post.database) as connection:
        post.insert(connection, Write(topic, b"k", b"no"))
        connection.rollback()
        post.insert(connection, Write(topic, b"k", b"yes"))
    post.drain()
    assert values(post, topic) == [b"yes"]


def test_a_writer_that_commits_late_is_not_passed_over(post, topic):
    """Its number is lower than those that were published long before it was committed."""
    with InThread(post), psycopg.connect(post.database) as late:
        waits = Write(topic, b"late", b"late")
        post.insert(late, waits)
        post.send(*islice(apart_from(waits), 200))
        wait_for("those that were committed", lambda: post.count(topic) == 200)
        wait_for("their deletion", lambda: post.waiting() == 0)
        late.commit()
        wait_for("the late one", lambda: post.count(topic) == 201)
    assert post.waiting() == 0


def test_one_is_published_when_it_is_committed_not_when_it_is_time_to_look(post, topic):
    with InThread(post, poll=3600, lease_seconds=3600) as relay:
        wait_for("its shards", lambda: relay.figures.shards == 32)
        for number in range(5):
            post.send(Write(topic, b"k", b"%d" % number))
            wait_for("it to arrive", lambda count=number + 1: post.count(topic) == count)


def test_without_a_word_it_looks_by_itself(post, topic):
    with InThread(post, poll=0.05):
        with psycopg.connect(post.database, autocommit=True) as connection:
            connection.execute(
                "insert into redrive.outbox (app, shard, id, aggregatetype, topic, payload)"
                " values (%s, 3, 'by-hand', 'x', %s, 'value')",
                [post.app, topic],
            )
        wait_for("it to arrive", lambda: post.count(topic) == 1)


def test_other_apps_rows_are_theirs(post, topic, redrive_stack):
    other = Post(redrive_stack.bootstrap, post.database, f"{post.app}-other")
    other.send(Write(topic, b"k", b"theirs"))
    post.send(Write(topic, b"k", b"ours"))
    post.drain()
    assert values(post, topic) == [b"ours"]
    assert post.waiting() == 1


def test_shares_are_fair_and_follow_who_is_there(post):
    with InThread(post) as first:
        wait_for("all shards", lambda: first.figures.shards == 32)
        with InThread(post) as second, InThread(post) as third:
            relays = (first, second, third)
            wait_for("a third each", lambda: {r.figures.shards for r in relays} <= {10, 11})
            wait_for("all owned", lambda: sum(r.figures.shards for r in relays) == 32)
        wait_for("all shards again", lambda: first.figures.shards == 32)


def test_a_batch_that_was_not_deleted_is_published_again_with_the_same_ids(
    post, topic, monkeypatch
):
    post.send(*(Write(topic, b"%d" % n, b"%d" % n) for n in range(50)))
    real = Publishing.settle
    calls = []

    def crash_once(self, *given):
        found = real(self, *given)
        if not calls:
            calls.append(1)
            raise KafkaAwayError("published, and then the process is gone")
        return found

    monkeypatch.setattr(Publishing, "settle", crash_once)
    relay = post.drain()
    arrived = post.arrived(topic)
    ids = [record.header("id") for record in arrived]
    assert len(ids) == 100
    assert len(set(ids)) == 50
    assert relay.figures.abandoned == 1
    assert relay.figures.published == {topic: 50}


def test_after_a_fatal_error_the_relay_has_a_new_producer(redrive_stack, redrive_topic):
    """Here librdkafka takes any refusal by a broker for a fatal error."""
    topic = redrive_topic("small")
    options = {"enable.gapless.guarantee": True}
    settings = load_settings(
        {"bootstrap": redrive_stack.bootstrap, "librdkafka": options}, environ={}
    )
    KafkaTopics(settings).configure(topic, {"max.message.bytes": "2000"})
    publishing = Publishing(settings, 20)
    for number in range(2):
        publishing.hand_over([Taken(number, Write(topic, b"k", b"x" * 5000))], lambda: None)
        with pytest.raises(KafkaAwayError, match="MSG_SIZE_TOO_LARGE"):
            publishing.settle(lambda: None, lambda: False)
        publishing.hand_over([Taken(number, Write(topic, b"k", b"small"))], lambda: None)
        assert publishing.settle(lambda: None, lambda: False) == []


@pytest.mark.parametrize("bad", [(5,), (3, 5)])
def test_rows_do_not_wait_for_one_that_their_batch_was_refused_for(
    redrive_stack, redrive_topic, monkeypatch, bad
):
    """A user who may not see a topic's settings does not know beforehand what it refuses."""
    topic = redrive_topic("compacted")
    settings = load_settings({"bootstrap": redrive_stack.bootstrap}, environ={})
    KafkaTopics(settings).configure(topic, {"cleanup.policy": "compact"})

    def refuse(*_):
        raise NotAllowedError("may not see them")

    monkeypatch.setattr(admission, "topic_settings", refuse)
    publishing = Publishing(settings, 20)
    taken = [Taken(n, Write(topic, None if n in bad else b"%d" % n, b"v")) for n in range(10)]
    assert publishing.refusals(taken) == []
    publishing.hand_over(taken, lambda: None)
    refused = publishing.settle(lambda: None, lambda: False)
    found = [(each.taken, each.whole_topic, "INVALID_RECORD" in each.reason) for each in refused]
    assert found == [(taken[n], False, True) for n in bad]


def test_nothing_is_deleted_before_kafka_has_it(post, topic, redrive_stack, impatient):
    """With so short a lease, a broker that has just come back may seem silent several times."""
    broker = redrive_stack.brokers[0]
    post.send(*(Write(topic, b"%d" % n, b"%d" % n) for n in range(50)))
    with InThread(post, lease_seconds=4) as relay:
        wait_for("the first ones", lambda: post.waiting() == 0)
        broker.kill()
        try:
            post.send(*(Write(topic, b"%d" % n, b"later") for n in range(50)))
            wait_for("trouble", lambda: relay.figures.trouble.startswith("kafka"))
            assert post.waiting() == 50
            assert checks(relay)["/ready"]().startswith("kafka")
        finally:
            broker.start()
        wait_for("the others", lambda: post.waiting() == 0)
        wait_for("no trouble", lambda: not checks(relay)["/ready"]())
    assert len({record.header("id") for record in post.arrived(topic)}) == 100


def test_a_database_that_goes_away_is_waited_for_and_said_once(post, topic, redrive_stack, caplog):
    with InThread(post) as relay:
        post.send(Write(topic, b"k", b"1"))
        wait_for("the first", lambda: post.count(topic) == 1)
        redrive_stack.postgres.kill()
        try:
            wait_for("several attempts", lambda: relay.figures.errors["database"] > 3)
            assert relay.figures.trouble.startswith("database")
        finally:
            redrive_stack.postgres.start()
        post.send(Write(topic, b"k", b"2"))
        wait_for("the second", lambda: b"2" in values(post, topic))
    told = [one for one in caplog.records if "the outbox waits" in one.message]
    assert len(told) == 1


def test_a_session_that_was_ended_is_reopened(post, topic):
    with InThread(post) as relay:
        wait_for("its shards", lambda: relay.figures.shards == 32)
        with psycopg.connect(post.database, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'redrive relay%'"
            )
        post.send(Write(topic, b"k", b"1"))
        wait_for("it to arrive", lambda: post.count(topic) == 1)


def test_a_session_that_ends_while_kafka_refuses_is_reopened(post, topic, monkeypatch):
    """What it had taken cannot be given back in order: it never was gone."""
    real = Publishing.refusals
    ended = []

    def refuse_once(self, taken):
        if ended or not taken:
            return real(self, taken)
        with psycopg.connect(post.database, autocommit=True) as connection:
            ended.extend(
                connection.execute(
                    "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                    " where application_name like 'redrive relay%'"
                )
            )
        return [Refusal(taken[0], "no leader", whole_topic=True)]

    monkeypatch.setattr(Publishing, "refusals", refuse_once)
    post.send(Write(topic, b"k", b"1"))
    relay = post.drain()
    assert ended == [(True,)]
    assert values(post, topic) == [b"1"]
    assert relay.figures.errors == {"database": 1}


def test_while_it_waits_for_kafka_it_is_alive(post, topic, monkeypatch):
    post.send(Write(topic, b"k", b"1"))
    seen = []

    def long(_publishing, ping, _stopping):
        relay.figures.alive -= 3600
        ping()
        seen.append(checks(relay)["/live"]())
        return []

    monkeypatch.setattr(Publishing, "settle", long)
    relay = Relay(post.app, post.settings, stopping=lambda: bool(seen))
    relay.run()
    assert seen == [""]


# What Kafka refuses


def test_a_topic_that_is_not_there_stops_nobody_else(post, topic, redrive_topic, impatient, caplog):
    missing = f"{topic}-missing"
    post.send(*(Write(missing, b"%d" % n, b"x") for n in range(3)))
    post.send(*(Write(topic, b"%d" % n, b"%d" % n) for n in range(3)))
    with InThread(post) as relay:
        wait_for("the others", lambda: post.waiting() == 3)
        assert values(post, topic) == [b"0", b"1", b"2"]
        ((count, reason),) = relay.held_back.reasons().values()
        assert count == 1
        assert f"a write to {missing} was refused" in reason
        wait_for("another attempt", lambda: relay.figures.refused[missing] > 3)
        redrive_topic("out-missing", partitions=1)
        wait_for("all of them", lambda: post.waiting() == 0)
        assert relay.held_back.reasons() == {}
    told = [one for one in caplog.records if "was refused" in one.message]
    assert len(told) == 1


def test_a_row_that_is_too_large_holds_its_key_and_nobody_else(
    post, redrive_topic, redrive_stack, impatient
):
    topic = redrive_topic("small", config={"max.message.bytes": "2000"})
    post.send(
        Write(topic, b"a", b"1"),
        Write(topic, b"big", b"first"),
        Write(topic, b"big", b"x" * 3000),
        Write(topic, b"big", b"after"),
        Write(topic, None, b"y" * 3000),
        *(Write(topic, b"%d" % n, b"z" * 500) for n in range(50)),
    )
    with InThread(post) as relay:
        # "first" waits with its key: rows of one key are taken together or not at all.
        wait_for("all others", lambda: post.waiting() == 4)
        assert max(record.key for record in post.arrived(topic)) == b"a"
        assert relay.held_back.reasons()[topic][0] == 2
        grow_limit(redrive_stack.bootstrap, topic, 100_000)
        wait_for("all of them", lambda: post.waiting() == 0)
    big = [record.value[:5] for record in post.arrived(topic) if record.key == b"big"]
    assert big == [b"first", b"xxxxx", b"after"]


def test_a_partition_that_is_not_there_holds_its_key(post, topic):
    post.send(Write(topic, b"a", b"1", (), 99), Write(topic, b"b", b"2"))
    relay = post.drain()
    assert values(post, topic) == [b"2"]
    assert post.waiting() == 1
    assert "the topic has no such partition" in relay.held_back.reasons()[topic][1]


def test_a_compacted_topic_takes_no_record_without_key(post, redrive_topic):
    topic = redrive_topic("compacted", config={"cleanup.policy": "compact"})
    post.send(Write(topic, None, b"1"), Write(topic, b"b", b"2"))
    post.drain()
    assert values(post, topic) == [b"2"]
    assert post.waiting() == 1


def test_many_refused_keys_hold_the_topic(post, redrive_topic):
    topic = redrive_topic("small", config={"max.message.bytes": "1000"})
    post.send(*(Write(topic, b"%d" % n, b"x" * 2000) for n in range(700)))
    relay = post.drain()
    assert topic in relay.held_back.now().topics
    assert post.waiting() == 700


# Figures and the command


def test_backlog_and_figures_are_shown(post, topic):
    post.send(*(Write(f"{topic}-missing", b"%d" % n, b"") for n in range(7)))
    post.send(Write(topic, b"k", b""))
    relay = post.drain()
    with served(0, RelayCollector(relay), checks(relay)) as port:
        shown = urllib.request.urlopen(f"http://localhost:{port}/metrics").read().decode()
        for path in ("/live", "/ready"):
            assert urllib.request.urlopen(f"http://localhost:{port}{path}").read() == b"ok\n"
        relay.figures.trouble = "kafka: away"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://localhost:{port}/ready")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://localhost:{port}/else")
    labels = f'app="{post.app}",topic="{topic}'
    assert f'redrive_relay_backlog_rows{{{labels}-missing"}} 7.0' in shown
    assert f'redrive_relay_backlog_age_seconds{{{labels}-missing"}}' in shown
    assert f'redrive_relay_published_rows_total{{{labels}"}} 1.0' in shown
    assert f'redrive_relay_held{{{labels}-missing"}} 1.0' in shown


def test_a_database_without_ledger_is_one_sentence(redrive_stack, redrive_database):
    post = Post(redrive_stack.bootstrap, redrive_database, "shop")
    with pytest.raises(LedgerError, match="run `redrive ledger migrate`"):
        post.drain()


def test_an_address_that_is_none_is_not_shown(redrive_stack):
    with pytest.raises(ConfigurationError, match="is not a PostgreSQL address") as caught:
        Post(redrive_stack.bootstrap, "pass word=hidden", "shop")
    assert "hidden" not in str(caught.value)


def test_the_command_publishes_until_a_signal_ends_it(post, topic, tmp_path):
    post.send(Write(topic, b"k", b"1"))
    relay = Process(post, tmp_path, "--metrics-port", "0")
    try:
        wait_for("it to arrive", lambda: post.count(topic) == 1)
        relay.process.terminate()
        assert relay.process.wait(30) == 0, relay.output()
        assert "published 1 row\n" in relay.output()
    finally:
        relay.kill()


def test_the_command_until_empty_tells_by_its_code_whether_something_is_left(post, topic, tmp_path):
    post.send(Write(topic, b"k", b"1"))
    assert Process(post, tmp_path, "--until-empty").process.wait(60) == 0
    post.send(Write(f"{topic}-missing", b"k", b"1"))
    left = Process(post, tmp_path, "--until-empty", "--log-format", "json")
    assert left.process.wait(60) == 1
    lines = [json.loads(line) for line in left.output().splitlines()]
    (refused,) = [line for line in lines if line["logger"] == "redrive.relay"]
    assert refused["level"] == "error"
    assert "was refused" in refused["message"]
    assert lines[-1]["message"] == "published 0 rows", "also what is printed otherwise"


def test_rivals_insert_while_relays_publish(post, topic):
    def write(writer):
        for number in range(100):
            post.send(*(Write(topic, b"%d" % key, b"%d/%d" % (writer, number)) for key in range(5)))

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    with InThread(post), InThread(post):
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        wait_for("all of it", lambda: post.waiting() == 0)
    arrived = post.arrived(topic)
    assert len(arrived) == 1500
    for key in range(5):
        for writer in range(3):
            mine = [r.value for r in arrived if r.key == b"%d" % key]
            mine = [int(v.split(b"/")[1]) for v in mine if v.startswith(b"%d/" % writer)]
            assert mine == [*range(100)]


def test_what_a_topic_does_not_acknowledge_is_taken_back_and_the_rest_is_durable(monkeypatch):
    cluster = MockCluster(brokers=2)
    cluster.create("healthy", 1)
    cluster.create("sick", 2)
    # Such a cluster answers no administrator.
    monkeypatch.setattr(Admin, "topic", lambda _admin, _topic: partitions((node(1), [1])))
    monkeypatch.setattr(admission, "topic_settings", lambda _admin, _topic: {})
    publishing = Publishing(load_settings({"bootstrap": cluster.bootstrap}), patience=1)
    taken = [
        Taken(number, Write(topic, b"k", b"%d" % number))
        for number, topic in enumerate(["healthy", "sick", "healthy", "sick"])
    ]
    assert publishing.refusals(taken) == []
    cluster.set_leader("sick", None)
    publishing.hand_over(taken, lambda: None)
    refused = publishing.settle(lambda: None, lambda: False)
    assert [(one.taken.number, one.whole_topic) for one in refused] == [(1, True), (3, True)]
    assert refused[0].reason == "sick: no broker acknowledged a message for 1 s"
    cluster.set_leader("sick", 2)
    patient = Publishing(load_settings({"bootstrap": cluster.bootstrap}), patience=60)
    assert patient.refusals(taken[1:2]) == []
    patient.hand_over(taken[1:2], lambda: None)
    assert patient.settle(lambda: None, lambda: False) == []


class Slow:
    """A handover of which a message is acknowledged now and then."""

    ended = False

    def __init__(self, patience):
        self.outstanding, self.refused, self.now = 5, [], 0.0
        self._patience = patience

    def poll(self, _seconds):
        self.now += self._patience * 0.9
        self.outstanding -= 1

    def take_back(self):
        raise AssertionError("each was acknowledged soon after the one before")


def test_what_is_acknowledged_slowly_is_waited_for(monkeypatch):
    """Taken back, all of it would be published again, for ever, and the topic held for nothing."""
    slow = Slow(patience=10)
    publisher = SimpleNamespace(hand_over=lambda _writes: slow)
    monkeypatch.setattr("redrive.ledger.publishing.KafkaPublisher", lambda _settings: publisher)
    publishing = Publishing(load_settings({"bootstrap": "nowhere:9"}), patience=10)
    clock = SimpleNamespace(monotonic=lambda: slow.now)
    monkeypatch.setattr("redrive.ledger.publishing.time", clock)
    publishing.hand_over([], lambda: None)
    assert publishing.settle(lambda: None, lambda: False) == []
    assert slow.outstanding == 0


def node(number):
    return SimpleNamespace(id=number)


def partitions(*each):
    return SimpleNamespace(
        partitions=[
            SimpleNamespace(id=n, leader=leader, isr=isr, replicas=[1, 2])
            for n, (leader, isr) in enumerate(each)
        ]
    )


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (partitions((node(1), [1, 2]), (node(2), [1, 2])), None),
        (partitions((node(1), [1, 2]), (None, [])), "partition 1 has no leader"),
        (partitions((node(-1), [1, 2])), "partition 0 has no leader"),
        (partitions((node(1), [1])), "partition 0 has 1 replicas in sync"),
    ],
)
def test_a_topic_is_out_of_reach_while_one_of_its_partitions_is(topic, reason):
    for least in (2, 3):  # brokers do not ask for more replicas than there are
        found = out_of_reach(topic, least)
        assert found is None if reason is None else found.startswith(reason)


def test_rows_are_taken_by_their_weight_too(post, topic, monkeypatch):
    monkeypatch.setattr("redrive.ledger.outbox_reader.TAKE_BYTES", 100_000)
    sizes = [40_000, 70_000, 10, 250_000, 10, 10]
    post.send(*(Write(topic, b"one key", bytes(size)) for size in sizes))
    relay = post.drain()
    assert relay.figures.batches == 3  # 40,000 and 70,000; 10 and 250,000; the rest
    assert [len(record.value) for record in post.arrived(topic)] == sizes
