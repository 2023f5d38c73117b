"""What the broker in memory can do beyond the contract, and what makes it repeatable."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PublishError
from redrive.ports import Position
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker, partition_for
from redrive.testing.virtual_clock import VirtualClock

PLACE = TopicPartition("t", 0)
HEADERS = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4
).map(tuple)
MESSAGES = st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8), HEADERS)


@pytest.fixture
def clock():
    return VirtualClock(1000)


@pytest.fixture
def broker(clock):
    broker = MemoryBroker(clock)
    broker.create("t")
    return broker


@given(st.lists(MESSAGES, max_size=20))
def test_any_message_comes_back_byte_for_byte(messages):
    broker = MemoryBroker(VirtualClock())
    broker.create("t")
    broker.publish([Write("t", *message) for message in messages])
    read = broker.read(PLACE, 0, len(messages))
    assert [(record.key, record.value, record.headers) for record in read] == messages


# Known answers of Kafka's own murmur2, from its unit tests.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_partitioner_is_kafkas(key, hashed):
    assert partition_for(key, 1_000_003) == (hashed & 0x7FFFFFFF) % 1_000_003


def test_chance_repeats_by_its_seed():
    def partitions(seed):
        broker = MemoryBroker(VirtualClock(), seed=seed)
        broker.create("t", 8)
        broker.publish([Write("t", None, b"v")] * 20)
        return [record.partition for record in broker.records("t")], broker.topic_id("t")

    assert partitions(1) == partitions(1)
    assert partitions(1) != partitions(2)


def test_append_time_follows_the_virtual_clock(broker, clock):
    broker.configure("t", {"message.timestamp.type": "LogAppendTime"})
    broker.publish([Write("t", None, b"1", timestamp=5)])
    clock.advance("5m")
    broker.publish([Write("t", None, b"2", timestamp=5)])
    assert [record.timestamp for record in broker.records("t")] == [1000, 301_000]


def test_writes_are_refused_until_they_are_accepted_again(broker):
    broker.create("other")
    broker.refuse("t")
    with pytest.raises(PublishError, match="grant WRITE"):
        broker.publish([Write("t", None, b"v"), Write("other", None, b"v")])
    assert (len(broker.records("t")), len(broker.records("other"))) == (0, 1)
    broker.accept("t")
    broker.publish([Write("t", None, b"v")])
    assert len(broker.records("t")) == 1


def test_writes_are_refused_as_often_as_asked(broker):
    broker.refuse("t", error="NOT_ENOUGH_REPLICAS", times=2)
    for _ in range(2):
        with pytest.raises(PublishError, match=r"min\.insync\.replicas"):
            broker.publish([Write("t", None, b"v")])
    broker.publish([Write("t", None, b"v")])
    assert len(broker.records("t")) == 1


def test_an_error_of_ones_own_can_be_given(broker):
    mine = PublishError("mine")
    broker.refuse("t", error=mine)
    with pytest.raises(PublishError) as caught:
        broker.publish([Write("t", None, b"v")])
    assert str(caught.value) == "mine"
    assert [*caught.value.reasons] == [mine]


def test_gaps_of_any_size(broker):
    broker.gap(PLACE)
    broker.publish([Write("t", None, b"v")])
    broker.gap(PLACE, n=5)
    assert broker.bounds(PLACE) == (0, 7)
    assert [record.offset for record in broker.records("t")] == [1]


def test_truncating_never_moves_the_start_back_or_past_the_end(broker):
    broker.publish([Write("t", None, b"v")] * 3)
    broker.truncate(PLACE, 2)
    broker.truncate(PLACE, 1)
    assert broker.bounds(PLACE) == (2, 3)
    broker.truncate(PLACE, 9)
    assert broker.bounds(PLACE) == (3, 3)
    broker.publish([Write("t", None, b"next")])
    assert [record.offset for record in broker.records("t")] == [3]


def test_deleting_a_topic_deletes_progress_in_it_only(broker):
    broker.create("other")
    kept = TopicPartition("other", 0)
    progress = broker.progress("g")
    progress.commit({PLACE: Position(1), kept: Position(2)})
    broker.delete("t")
    assert progress.committed([PLACE, kept]) == {kept: Position(2)}


def test_many_threads_lose_nothing(broker):
    def work():
        for _ in range(200):
            broker.publish([Write("t", None, b"v"), Write("t", None, b"v")])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.offset for record in broker.records("t")] == list(range(3200))


def test_it_needs_no_kafka_client():
    code = (
        "import sys, redrive.testing.memory_broker as b; sys.exit('confluent_kafka' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The clock


def test_the_clock_moves_only_when_told(clock):
    assert (clock.now(), clock.now()) == (1000, 1000)
    assert clock.advance(5) == 1005
    assert clock.advance("1s") == 2005
    clock.set(7)  # also backwards: machines do that
    assert clock.now() == 7
    assert repr(clock) == "VirtualClock(7)"
    with pytest.raises(ValueError, match="use set"):
        clock.advance(-1)


def test_many_threads_move_the_clock(clock):
    threads = [
        threading.Thread(target=lambda: [clock.advance(1) for _ in range(1000)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == 1000 + 8000
