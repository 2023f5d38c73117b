"""What librdkafka does with writes that cannot be made, and how redrive says so."""

from __future__ import annotations

import threading

import privates
import pytest
from confluent_kafka import KafkaError, KafkaException
from mock_cluster import MockCluster

from redrive import App
from redrive.clock import WallClock
from redrive.config import load_settings
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.engines.spark.frames.chunks import Chunk
from redrive.engines.spark.frames.refused_rows import RefusedRows
from redrive.engines.spark.frames.writers import FlushWriter
from redrive.errors import ConfigurationError, PublishError
from redrive.kafka.config import make_handle
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.messages import Columns, Messages
from redrive.ports import Position
from redrive.processing.outcomes.causes import Tally
from redrive.processing.outcomes.report import Outcome
from redrive.record import Record, TopicPartition, Write


def settings_of(stack, **librdkafka):
    options = {name.replace("_", "."): value for name, value in librdkafka.items()}
    return load_settings({"bootstrap": stack.bootstrap, "librdkafka": options}, environ={})


def test_a_full_queue_is_waited_for(redrive_stack, log, place):
    settings = settings_of(redrive_stack, queue_buffering_max_messages=10)
    KafkaPublisher(settings).publish([Write(place.topic, None, b"%d" % n) for n in range(1000)])
    assert [int(record.value) for record in log.read(place, 0, 1000)] == list(range(1000))


def test_handed_over_together_they_stay_in_order_and_as_they_were(
    settings, log, place, redrive_topic
):
    """Plain writes go in one call, others in between by themselves."""
    other = TopicPartition(redrive_topic("other"), 0)
    plain = [(None, b"v"), (b"k", None), (b"", b""), (None, None), (b"k", b"v" * 3000)] * 150
    writes = [Write(place.topic, key, value) for key, value in plain]
    writes[300:300] = [
        Write(place.topic, b"k", b"v", (("h", b"1"), ("none", None))),
        *(Write(other.topic, b"%d" % number, b"v") for number in range(20)),
        Write(place.topic, b"k", b"v", (), 0, 1234),
    ]
    KafkaPublisher(settings).publish(writes)
    here = [write for write in writes if write.topic == place.topic]
    found = log.read(place, 0, len(here))
    assert [(each.key, each.value, each.headers) for each in found] == [
        (each.key, each.value, each.headers) for each in here
    ]
    assert [each.timestamp for each in found if each.timestamp == 1234] == [1234]
    assert [int(each.key) for each in log.read(other, 0, 20)] == list(range(20))


def test_of_those_handed_over_together_the_one_that_cannot_be_is_named(redrive_stack, log, place):
    publisher = KafkaPublisher(settings_of(redrive_stack, message_max_bytes=2000))
    writes = [Write(place.topic, b"%d" % number, b"v") for number in range(20)]
    writes[7] = Write(place.topic, b"7", b"v" * 5000)
    with pytest.raises(PublishError, match="MSG_SIZE_TOO_LARGE") as caught:
        publisher.publish(writes)
    assert caught.value.refused == [writes[7]]
    assert [int(each.key) for each in log.read(place, 0, 19)] == [*range(7), *range(8, 20)]


def test_of_equal_records_those_are_refused_whose_broker_is_away():
    """They differ in headers only, as hops do."""
    cluster = MockCluster(brokers=2)
    cluster.create("hops", 1, 2)
    librdkafka = {"message.timeout.ms": 2000}
    settings = load_settings({"bootstrap": cluster.bootstrap, "librdkafka": librdkafka}, environ={})
    publisher = KafkaPublisher(settings)
    publisher.publish([Write("hops", b"k", b"first", (), number) for number in (0, 1)])
    cluster.set_down(2)
    writes = [
        Write("hops", b"k", b"v", (("redrive-origin-offset", b"%d" % number),), number % 2)
        for number in range(200)
    ]
    with pytest.raises(PublishError) as caught:
        publisher.publish(writes)
    assert {id(one) for one in caught.value.refused} == {id(one) for one in writes[1::2]}
    cluster.set_up(2)
    publisher.publish(caught.value.refused)
    log = KafkaLog(settings, "test")
    found = [
        int(record.headers[0][1] or b"")
        for number in (0, 1)
        for record in log.read(TopicPartition("hops", number), 1, 101)
    ]
    assert sorted(found) == list(range(200))


def test_columns_are_handed_over_in_order_and_as_they_were_though_the_queue_is_full(
    redrive_stack, log, place
):
    publisher = KafkaPublisher(settings_of(redrive_stack, queue_buffering_max_messages=10))
    pairs = [(None, b"v"), (b"k", None), (b"", b""), (None, None), (b"k", b"v" * 3000)] * 40
    messages = Messages([Write(place.topic, b"before", b"v")])
    messages.extend_by(Columns(place.topic, *zip(*pairs, strict=True)))
    messages.extend([Write(place.topic, b"after", b"v")])
    handed = publisher.hand_over(messages)
    while handed.outstanding:
        handed.poll(0.1)
    assert handed.error() is None
    found = [(each.key, each.value) for each in log.read(place, 0, len(messages))]
    assert found == [(b"before", b"v"), *pairs, (b"after", b"v")]


def test_of_columns_the_one_that_cannot_be_written_is_named(redrive_stack, log, place):
    publisher = KafkaPublisher(settings_of(redrive_stack, message_max_bytes=2000))
    messages, values = Messages(), [b"v"] * 20
    values[7] = b"v" * 5000
    messages.extend_by(Columns(place.topic, [b"%d" % number for number in range(20)], values))
    with pytest.raises(PublishError, match="MSG_SIZE_TOO_LARGE") as caught:
        publisher.publish(messages)
    assert [id(each) for each in caught.value.refused] == [id(messages[7])]
    assert [int(each.key) for each in log.read(place, 0, 19)] == [*range(7), *range(8, 20)]


def test_many_threads_share_one_publisher_and_each_hears_of_its_own(redrive_stack, log, place):
    publisher = KafkaPublisher(settings_of(redrive_stack, topic_metadata_propagation_max_ms=1))
    told = []

    def work(number):
        for _ in range(20):
            publisher.publish([Write(place.topic, None, b"%d" % number)])
            with pytest.raises(PublishError) as caught:
                publisher.publish([Write(f"{place.topic}.{number}", None, b"v")])
            told.append((number, str(caught.value)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.read(place, 0, 80)) == 80
    assert len(told) == 80
    assert all(f"{place.topic}.{number} " in text for number, text in told)


def test_a_broker_that_is_not_there(nowhere):
    quick = load_settings(
        {"bootstrap": nowhere.bootstrap, "librdkafka": {"message.timeout.ms": 500}}, environ={}
    )
    with pytest.raises(PublishError, match="check that the brokers are up and reachable") as caught:
        KafkaPublisher(quick).publish([Write("t", b"the key", b"v"), Write("t", None, b"v")])
    assert "the key" not in str(caught.value)
    assert caught.value.__notes__ == ["2 of 2 writes were refused"]


# Each write knows its own fate


@pytest.fixture
def small(redrive_topic, settings):
    """A topic for small messages, with two partitions."""
    topic = redrive_topic("small", partitions=2)
    KafkaTopics(settings).configure(topic, {"max.message.bytes": "2000"})
    return topic


def like(topic, size, partition):
    """A write that differs from its like in its headers alone, as hops of equal records do."""
    return Write(topic, None, b"tick", (("pad", b"x" * size),), partition)


def test_a_write_is_not_blamed_for_the_refusal_of_its_twin(settings, small):
    writes = [like(small, 1, 0), like(small, 5000, 1), like(small, 2, 0)]
    with pytest.raises(PublishError) as caught:
        KafkaPublisher(settings).publish(writes)
    assert [id(each) for each in caught.value.refused] == [id(writes[1])]


@pytest.fixture
def compacted(redrive_topic, settings):
    """A topic that takes no message without a key: brokers refuse its batch with it."""
    topic = redrive_topic("compacted")
    KafkaTopics(settings).configure(topic, {"cleanup.policy": "compact"})
    return topic


@pytest.mark.parametrize("bad", [(5,), (3, 5)])
def test_a_write_is_not_blamed_for_another_of_its_batch(settings, log, compacted, bad):
    """librdkafka has other words for the innocent ones where there are several."""
    writes = [Write(compacted, None if n in bad else b"%d" % n, b"v") for n in range(10)]
    with pytest.raises(PublishError, match="INVALID_RECORD") as caught:
        KafkaPublisher(settings).publish(writes)
    assert [id(each) for each in caught.value.refused] == [id(writes[n]) for n in bad]
    place = TopicPartition(compacted, 0)
    found = [record.key for record in log.read(place, *log.bounds(place))]
    assert sorted(found) == [b"%d" % n for n in range(10) if n not in bad]


def test_a_row_of_columns_is_not_blamed_for_the_refusal_of_another(redrive_stack, small):
    publisher = KafkaPublisher(settings_of(redrive_stack, batch_num_messages=1))
    messages, values = Messages(), [b"v"] * 20
    values[7] = values[9] = b"v" * 5000
    messages.extend_by(Columns(small, [b"k"] * 20, values))
    handed = publisher.hand_over(messages)
    while handed.outstanding:
        handed.poll(0.1)
    assert {id(each.write) for each in handed.refused} == {id(messages[7]), id(messages[9])}


def test_a_row_of_a_frame_is_not_passed_over_for_the_refusal_of_its_twin(
    settings, admin, small, place, redrive_prefix
):
    progress = KafkaProgress(settings, redrive_prefix, admin=admin)
    publisher, blamed = KafkaPublisher(settings), []

    def bury(row: int, _: PublishError) -> Outcome:
        blamed.append(row)
        return Outcome("bury", row, Record("in", 0, row))

    topics = RefusingTopics(publisher.refusing, WallClock())
    writer = FlushWriter(
        publisher,
        progress,
        place,
        start=0,
        every=3600,
        refused_rows=RefusedRows(topics, bury),
        tally=Tally(App("shop")),
    )
    writes = [like(small, 1, 0), like(small, 5000, 1), like(small, 2, 0)]
    writer.put(Chunk(3, Messages(writes), owners=[0, 1, 2], done=[[0, 1, 2]]))
    writer.finish()
    assert blamed == [1]
    assert writer.counts == {"done": 2, "bury": 1}
    assert progress.committed([place]) == {place: Position(3)}


@pytest.mark.parametrize(
    "odd",
    [
        {"partition": 2**31},
        {"timestamp": 2**63},
        {"headers": (("h", 7),)},
        {"headers": (("\udc80", b"v"),)},
        {"headers": (("a\0b", b"v"),)},
        {"headers": ((None, b"v"),)},
    ],
    ids=["partition", "timestamp", "header", "no text", "NUL", "no name"],
)
def test_what_no_message_can_have_is_refused_for_that_write_alone(settings, log, place, odd):
    writes = [Write(place.topic, b"k", value) for value in (b"1", b"2", b"3")]
    writes[1] = writes[1]._replace(**odd)
    with pytest.raises(PublishError, match=r"_INVALID_ARG.*check the partition") as caught:
        KafkaPublisher(settings).publish(writes)
    assert [id(each) for each in caught.value.refused] == [id(writes[1])]
    assert [record.value for record in log.read(place, 0, 2)] == [b"1", b"3"]


# Fatal errors


@pytest.fixture
def strict(redrive_stack):
    """Settings with which librdkafka takes any refusal by a broker for a fatal error."""
    return settings_of(redrive_stack, enable_gapless_guarantee=True, linger_ms=50)


def test_after_a_fatal_error_the_next_publish_has_a_new_producer(strict, log, small, caplog):
    publisher = KafkaPublisher(strict)
    for number in range(3):
        with pytest.raises(PublishError):
            publisher.publish([like(small, 5000, 1)])
        publisher.publish([Write(small, None, b"%d" % number, (), 0)])
    assert [each.value for each in log.read(TopicPartition(small, 0), 0, 3)] == [b"0", b"1", b"2"]
    assert "a producer failed fatally (_GAPLESS_GUARANTEE" in caplog.text


def test_after_a_fatal_error_what_was_handed_over_is_still_reported(strict, small):
    publisher = KafkaPublisher(strict)
    first = publisher.hand_over([like(small, 5000, 1)])
    while first.outstanding:
        first.poll(0.1)
    second = publisher.hand_over([Write(small, None, b"v", (), 0)])
    while second.outstanding:
        second.poll(0.1)
    assert first.error() is not None
    assert second.error() is None


def test_nothing_that_is_handed_over_later_is_waited_for(settings, place):
    """A producer does not say whose messages it still has: but it had none in between."""
    topic, publisher = place.topic, KafkaPublisher(settings)
    first = publisher.hand_over([Write(topic, None, b"1")])
    second = publisher.hand_over([Write(topic, None, b"2")])
    while second.outstanding:
        second.poll(0.1)
    third = publisher.hand_over([Write(topic, None, b"3")])
    assert third.outstanding
    assert (first.outstanding, second.outstanding) == (0, 0)
    while third.outstanding:
        third.poll(0.1)


class Ended:
    """A producer after a fatal error that nobody has polled for: its errors have no fatal flag."""

    def produce(self, *_, **__):
        raise KafkaException(KafkaError(privates.FATAL, "Unable to produce message"))

    def list_topics(self, *_, **__): ...

    def __len__(self):
        return 0


def test_a_write_that_an_ended_producer_refuses_is_nobodys_fault(settings, log, place, monkeypatch):
    publisher = KafkaPublisher(settings)
    made = [Ended()]  # the first; all others are real
    monkeypatch.setattr(
        "redrive.kafka.publisher.make_handle",
        lambda *given: made.pop() if made else make_handle(*given),
    )
    with pytest.raises(PublishError, match="the producer failed fatally") as caught:
        publisher.publish([Write(place.topic, None, b"1")])
    assert caught.value.outage
    publisher.publish([Write(place.topic, None, b"2")])
    assert [record.value for record in log.read(place, 0, 1)] == [b"2"]


def test_a_setting_that_librdkafka_does_not_know(redrive_stack, place):
    publisher = KafkaPublisher(settings_of(redrive_stack, no_such_setting="x"))
    with pytest.raises(ConfigurationError, match=r"No such configuration property.*no\.such"):
        publisher.publish([Write(place.topic, None, b"v")])


def test_no_producer_is_made_before_it_is_needed(nowhere, monkeypatch):
    made = []

    def make(*given):
        made.append(make_handle(*given))
        return made[-1]

    monkeypatch.setattr("redrive.kafka.publisher.make_handle", make)
    publisher = KafkaPublisher(nowhere)
    assert publisher.not_allowed is None
    assert made == []
    publisher.hand_over([])
    assert len(made) == 1
    publisher.close()


def test_a_mistyped_topic_is_refused_also_where_brokers_create_what_they_are_asked_for():
    """librdkafka's own broker does so, as Kafka does by default."""
    quick = {"test.mock.num.brokers": 1, "topic.metadata.propagation.max.ms": 100}
    settings = load_settings({"bootstrap": "none:1", "librdkafka": quick}, environ={})
    publisher = KafkaPublisher(settings)
    with pytest.raises(PublishError, match=r"invoicse was refused .*does not exist"):
        publisher.publish([Write("invoicse", None, b"v")])
    publisher.close()
