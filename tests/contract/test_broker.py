"""What redrive relies on, of Kafka and of the broker in memory alike."""

from __future__ import annotations

from time import time

import pytest

from redrive.errors import PublishError
from redrive.kafka.errors import BrokerError, MissingTopicError, OffsetsGoneError
from redrive.ports import Position
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import partition_for

NASTY = [
    (None, None, ()),
    (b"", b"", ()),
    (None, b"", (("empty", b""), ("null", None))),
    (b"", None, (("", b"a header without a name"),)),
    (b"\x00\xff\xfe", bytes(range(256)), (("binary", bytes(range(256))),)),
    (b"k", b"v", (("twice", b"1"), ("other", b"2"), ("twice", b"1"), ("twice", b"3"))),
    ("schlüssel".encode(), "値".encode(), (("überschrift", "日本".encode()), ("x" * 300, b"long"))),
    (b"k", b"v" * 100_000, tuple((f"h{number}", None) for number in range(100))),
]


def place(topic, number=0):
    return TopicPartition(topic, number)


# Writing and reading


def test_key_value_and_headers_come_back_byte_for_byte(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, key, value, headers) for key, value, headers in NASTY])
    read = broker.log.read(place(topic), 0, len(NASTY))
    assert [(record.key, record.value, record.headers) for record in read] == NASTY
    assert [record.offset for record in read] == list(range(len(NASTY)))
    assert {(record.topic, record.partition) for record in read} == {(topic, 0)}


def test_order_is_kept_in_a_partition(broker):
    topic = broker.topic(partitions=2)
    values = [f"{number}".encode() for number in range(2000)]
    broker.publisher.publish([Write(topic, b"one key", value) for value in values])
    number = partition_for(b"one key", 2)
    assert broker.log.bounds(place(topic, number)) == (0, 2000)
    assert [record.value for record in broker.log.read(place(topic, number), 0, 2000)] == values


def test_a_given_partition_is_used_whatever_the_key(broker):
    topic = broker.topic(partitions=4)
    broker.publisher.publish(
        [Write(topic, b"same", b"%d" % number, partition=number) for number in range(4)]
    )
    assert [record.value for record in broker.all_records(topic)] == [b"0", b"1", b"2", b"3"]


def test_keys_are_where_javas_clients_put_them(broker):
    # Seven, so that no bit of the hash can be forgotten.
    topic = broker.topic(partitions=7)
    keys = [b"", b"\x00", b"\xff\xfe\xfd", *(b"key-%d" % number * 3 for number in range(60))]
    broker.publisher.publish([Write(topic, key, b"v") for key in keys])
    found = {record.key: record.partition for record in broker.all_records(topic)}
    assert found == {key: partition_for(key, 7) for key in keys}


def test_records_without_a_key_are_spread(broker):
    topic = broker.topic(partitions=2)
    for _ in range(40):
        broker.publisher.publish([Write(topic, None, b"v")])
        if len({record.partition for record in broker.all_records(topic)}) == 2:
            return
    pytest.fail("forty records without a key, and all in one partition")


def test_writing_nothing_is_fine(broker):
    broker.publisher.publish([])


# Time


def test_create_time_is_the_writers(broker):
    topic = broker.topic(config={"message.timestamp.type": "CreateTime"})
    broker.publisher.publish([Write(topic, None, b"v", timestamp=1_500_000_000_123)])
    assert [record.timestamp for record in broker.all_records(topic)] == [1_500_000_000_123]


def test_log_append_time_is_the_brokers(broker):
    topic = broker.topic(config={"message.timestamp.type": "LogAppendTime"})
    before = broker.now()
    broker.publisher.publish([Write(topic, None, b"v", timestamp=1_500_000_000_123)])
    assert before <= broker.all_records(topic)[0].timestamp <= broker.now()


def test_times_before_1970_are_times_and_minus_one_is_none(broker):
    topic = broker.topic(config={"message.timestamp.type": "CreateTime"})
    broker.publisher.publish([Write(topic, None, b"v", timestamp=time) for time in (-5, -1, -2)])
    assert [record.timestamp for record in broker.all_records(topic)] == [-5, None, -2]


def test_without_a_timestamp_it_is_the_time_of_writing(broker):
    topic = broker.topic(config={"message.timestamp.type": "CreateTime"})
    before = broker.now()
    broker.publisher.publish([Write(topic, None, b"v")])
    assert before <= broker.all_records(topic)[0].timestamp <= broker.now()


# Ranges


def test_ranges_are_read_exactly(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"%d" % number) for number in range(10)])

    def read(start, end):
        return [int(record.value) for record in broker.log.read(place(topic), start, end)]

    assert read(0, 10) == list(range(10))
    assert read(3, 7) == [3, 4, 5, 6]
    assert read(9, 10) == [9]
    assert read(4, 5) == [4]
    assert read(7, 7) == read(8, 3) == []
    assert read(3, 7) == [3, 4, 5, 6]


def test_reading_twice_gives_records_of_its_own(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"v")])
    first = broker.log.read(place(topic), 0, 1)
    first[0].data = "decoded"
    assert broker.log.read(place(topic), 0, 1)[0].data == b"v"


def test_an_empty_partition(broker):
    topic = broker.topic()
    assert broker.log.bounds(place(topic)) == (0, 0)
    assert broker.log.read(place(topic), 0, 0) == []


def test_gaps_are_passed_also_at_the_end(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"0")])
    broker.gap(place(topic))
    broker.publisher.publish([Write(topic, None, b"1")])
    broker.gap(place(topic))
    start, end = broker.log.bounds(place(topic))
    read = broker.log.read(place(topic), start, end)
    assert [(record.offset, record.value) for record in read] == [(0, b"0"), (4, b"1")]
    assert (start, end) == (0, 8)
    # Ranges of nothing but a gap: in the middle, and at the end.
    assert broker.log.read(place(topic), 1, 4) == []
    assert broker.log.read(place(topic), 5, 8) == []
    assert broker.log.read(place(topic), 7, 8) == []


def test_the_first_record_of_a_time_is_the_first_at_or_after_it(broker):
    topic, began = broker.topic(), int(time() * 1000) - 60_000
    times = [began + each for each in (0, 3000, 2000, 4000)]
    broker.publisher.publish([Write(topic, b"k", b"v", timestamp=each) for each in times])

    def since(milliseconds):
        return broker.log.appended_since({place(topic): began + milliseconds})[place(topic)]

    assert since(-1) == (0, times[0])
    assert since(0) == (0, times[0])
    assert since(1) == since(2000) == since(3000) == (1, times[1])
    assert since(3001) == (3, times[3])
    assert since(4001) is None


def test_deleted_records_are_outside_the_bounds(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"%d" % number) for number in range(5)])
    broker.truncate(place(topic), 3)
    assert broker.log.bounds(place(topic)) == (3, 5)
    assert [record.offset for record in broker.log.read(place(topic), 3, 5)] == [3, 4]


def test_all_records_deleted(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"v")] * 3)
    broker.truncate(place(topic), 3)
    assert broker.log.bounds(place(topic)) == (3, 3)


def test_reading_what_was_deleted_is_an_error_and_never_a_shorter_answer(broker):
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"v")] * 5)
    broker.truncate(place(topic), 3)
    with pytest.raises(OffsetsGoneError, match="offset 1 is not in the log") as caught:
        broker.log.read(place(topic), 1, 5)
    assert (caught.value.partition, caught.value.offset) == (place(topic), 1)


def test_an_offset_the_log_never_had_is_an_error(broker):
    topic = broker.topic()
    with pytest.raises(OffsetsGoneError, match="offset 7"):
        broker.log.read(place(topic), 7, 9)


def test_reading_past_the_end_is_an_error(broker):
    # Whoever committed such an end would skip what is written there later.
    topic = broker.topic()
    broker.publisher.publish([Write(topic, None, b"v")] * 2)
    with pytest.raises(BrokerError, match="ends at offset 2, before the requested offset 4"):
        broker.log.read(place(topic), 0, 4)


# Topics that are not there, or not there any more


def test_a_missing_topic(broker):
    missing = broker.name()
    assert broker.log.partitions(missing) == 0
    assert broker.topics.describe([missing]) == {}
    with pytest.raises(MissingTopicError, match="does not exist: create it"):
        broker.log.topic_id(missing)
    with pytest.raises(MissingTopicError):
        broker.log.bounds(place(missing))
    with pytest.raises(MissingTopicError):
        broker.log.read(place(missing), 0, 1)
    assert broker.log.partitions(missing) == 0  # asking did not create it


def test_a_missing_partition(broker):
    topic = broker.topic(partitions=2)
    with pytest.raises(BrokerError, match="does not exist: the topic has 2 partitions"):
        broker.log.bounds(place(topic, 2))
    with pytest.raises(BrokerError, match="does not exist"):
        broker.log.read(place(topic, 2), 0, 1)


def test_a_recreated_topic_has_another_id_and_nobodys_progress(broker):
    topic = broker.topic()
    progress = broker.progress(broker.name())
    broker.publisher.publish([Write(topic, None, b"old")])
    progress.commit({place(topic): Position(1)})
    before = broker.log.topic_id(topic)
    assert broker.log.topic_id(topic) == before
    broker.delete(topic)
    broker.topics.create(topic, 1, {})
    assert broker.log.topic_id(topic) != before
    assert "/" not in broker.log.topic_id(topic)
    assert broker.log.bounds(place(topic)) == (0, 0)
    assert progress.committed([place(topic)]) == {}


# Writes that are refused


def test_a_message_too_large_takes_nobody_with_it(broker):
    topic = broker.topic(config={"max.message.bytes": "2000"})
    other = broker.topic()
    writes = [Write(topic, None, b"small %d" % number) for number in range(5)]
    writes += [Write(topic, b"the key", b"x" * 3000), Write(topic, None, b"last")]
    writes += [Write(other, None, b"elsewhere")]
    with pytest.raises(PublishError, match=r"raise the topic's max\.message\.bytes") as caught:
        broker.publisher.publish(writes)
    assert topic in str(caught.value)
    assert "the key" not in str(caught.value)
    assert {record.value for record in broker.all_records(topic)} == {
        *(b"small %d" % number for number in range(5)),
        b"last",
    }
    assert [record.value for record in broker.all_records(other)] == [b"elsewhere"]


def test_many_small_messages_fit_into_a_topic_for_small_messages(broker):
    # Their batch does not, and brokers refuse batches.
    topic = broker.topic(config={"max.message.bytes": "2000"})
    broker.publisher.publish([Write(topic, b"k", b"x" * 500)] * 50)
    assert len(broker.all_records(topic)) == 50


def test_a_large_message_is_taken_where_the_topic_takes_it(broker):
    topic = broker.topic(config={"max.message.bytes": "4000000"})
    broker.publisher.publish([Write(topic, None, b"x" * 3_000_000)])
    assert [record.size for record in broker.all_records(topic)] == [3_000_000]


def test_a_write_to_a_missing_topic(broker):
    there, missing = broker.topic(), broker.name()
    with pytest.raises(PublishError, match="does not exist: create it") as caught:
        broker.publisher.publish([Write(missing, None, b"v"), Write(there, None, b"v")])
    assert missing in str(caught.value)
    assert len(broker.all_records(there)) == 1
    broker.publisher.publish([Write(there, None, b"next")])
    assert len(broker.all_records(there)) == 2


def test_a_write_to_a_missing_partition(broker):
    topic = broker.topic(partitions=2)
    with pytest.raises(PublishError, match=r"\[5\].*has no such partition"):
        broker.publisher.publish([Write(topic, None, b"v", partition=5)])


def test_the_first_refused_write_is_the_one_named(broker):
    missing, small = broker.name(), broker.topic(config={"max.message.bytes": "1000"})
    with pytest.raises(PublishError, match=f"a write to {missing}"):
        broker.publisher.publish([Write(missing, None, b"v"), Write(small, None, b"x" * 2000)])
    with pytest.raises(PublishError, match=r"max\.message\.bytes"):
        broker.publisher.publish([Write(small, None, b"x" * 2000), Write(missing, None, b"v")])


# Progress


def test_no_progress_is_left_out(broker):
    topic = broker.topic(partitions=2)
    progress = broker.progress(broker.name())
    assert progress.committed([]) == {}
    assert progress.committed([place(topic, 0), place(topic, 1)]) == {}
    progress.commit({})
    progress.commit({place(topic, 1): Position(0)})
    assert progress.committed([place(topic, 0), place(topic, 1)]) == {place(topic, 1): Position(0)}


def test_progress_is_seen_by_others_at_once(broker):
    topic, group = broker.topic(partitions=3), broker.name()
    writer, reader = broker.progress(group), broker.progress(group)
    for offset in range(20):
        positions = {place(topic, number): Position(offset, f"{number}") for number in range(3)}
        writer.commit(positions)
        assert reader.committed(list(positions)) == positions


def test_progress_may_move_backwards(broker):
    topic = broker.topic()
    progress = broker.progress(broker.name())
    progress.commit({place(topic): Position(9, "nine")})
    progress.commit({place(topic): Position(4)})
    assert progress.committed([place(topic)]) == {place(topic): Position(4, "")}


@pytest.mark.parametrize("metadata", ["", "x" * 4095, "1-3,7", "ä€" * 800], ids=len)
def test_metadata_comes_back_as_it_was(broker, metadata):
    topic = broker.topic()
    progress = broker.progress(broker.name())
    progress.commit({place(topic): Position(1, metadata)})
    assert progress.committed([place(topic)]) == {place(topic): Position(1, metadata)}


@pytest.mark.parametrize("metadata", ["x" * 4096, "€" * 1366, "x" * 100_000], ids=len)
def test_metadata_that_no_broker_takes_is_an_error_and_changes_nothing(broker, metadata):
    topic = broker.topic()
    progress = broker.progress(broker.name())
    progress.commit({place(topic): Position(1, "kept")})
    with pytest.raises(BrokerError, match="longer than 4095 bytes: store fewer offsets"):
        progress.commit({place(topic): Position(2, metadata)})
    assert progress.committed([place(topic)]) == {place(topic): Position(1, "kept")}


def test_groups_do_not_see_each_other(broker):
    topic = broker.topic()
    one, other = broker.progress(broker.name()), broker.progress(broker.name())
    one.commit({place(topic): Position(5)})
    assert other.committed([place(topic)]) == {}


# Topics


def test_a_topic_is_described_as_it_was_created(broker):
    name = broker.name()
    broker.topics.create(name, 3, {"retention.ms": "1234567"}, replication=1)
    state = broker.topics.describe([name])[name]
    assert (state.partitions, state.replication) == (3, 1)
    assert state.config["retention.ms"] == "1234567"
    assert state.config["cleanup.policy"] == "delete"  # a default, told as well
    assert broker.log.partitions(name) == 3


def test_a_topic_can_be_created_with_the_brokers_replication(broker):
    name = broker.name()
    broker.topics.create(name, 1, {})
    assert broker.topics.describe([name])[name].replication >= 1


def test_a_topic_is_created_once(broker):
    topic = broker.topic()
    with pytest.raises(BrokerError, match=topic):
        broker.topics.create(topic, 1, {})


def test_topics_grow_and_never_shrink(broker):
    topic = broker.topic(partitions=2)
    broker.topics.grow(topic, 5)
    assert broker.topics.describe([topic])[topic].partitions == 5
    broker.publisher.publish([Write(topic, None, b"v", partition=4)])
    assert broker.log.bounds(place(topic, 4)) == (0, 1)
    with pytest.raises(BrokerError, match=topic):
        broker.topics.grow(topic, 3)


def test_configuring_leaves_other_settings_alone(broker):
    topic = broker.topic(config={"retention.ms": "1000000", "max.message.bytes": "5000"})
    broker.topics.configure(topic, {"retention.ms": "2000000"})
    config = broker.topics.describe([topic])[topic].config
    assert (config["retention.ms"], config["max.message.bytes"]) == ("2000000", "5000")


def test_what_is_not_there_cannot_be_changed(broker):
    missing = broker.name()
    with pytest.raises(BrokerError, match=missing):
        broker.topics.grow(missing, 5)
    with pytest.raises(BrokerError, match=missing):
        broker.topics.configure(missing, {"retention.ms": "1"})
