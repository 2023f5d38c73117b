"""`redrive-due` keeps the contract of Spark's Kafka source, with the time of each record."""

from __future__ import annotations

from threading import Event

import pytest
from confluent_kafka import TopicPartition as KafkasPlace
from confluent_kafka.admin import NewPartitions
from pyspark.errors import PySparkException

from redrive.engines.spark.frames.due import DueReader
from redrive.engines.spark.frames.due_options import DueOptions
from redrive.engines.spark.frames.reading import read
from redrive.engines.spark.ranges import Range
from redrive.errors import DataLossError
from redrive.kafka.publisher import KafkaPublisher
from redrive.local.waiting import wait_until
from redrive.record import Write
from redrive.spark import DueSource


@pytest.fixture
def due(world, spark_session):
    """Reads what is due by now, as a query that ends, and gives its rows."""
    spark_session.dataSource.register(DueSource)
    topic = world.topic("waiting")
    world.topics.create(topic, 2, {"message.timestamp.type": "LogAppendTime"})
    rows: list = []

    def run(delay: str):
        source = spark_session.readStream.format("redrive-due")
        frame = source.options(topics=topic, delay=delay, bootstrap=world.bootstrap).load()
        query = (
            frame.writeStream.option("checkpointLocation", str(world.folder / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: rows.extend(batch.collect()))
            .start()
        )
        query.awaitTermination(120)
        found, rows[:] = list(rows), []
        return frame, found

    return run


def test_records_come_once_and_as_from_sparks_own_source_but_only_when_due(
    world, spark_session, due
):
    topic = world.topic("waiting")
    headers = (("user", b"kept"), ("user", None))
    first = [Write(topic, b"%d" % n, b"v%d" % n, headers, n % 2) for n in range(10)]
    world.publisher.publish([*first, Write(topic, None, None, (), 0)])

    assert due("1h")[1] == []
    frame, found = due("1ms")
    ranges = [Range(topic, 0, 0, 6), Range(topic, 1, 0, 5)]
    kafkas = read(spark_session, world.settings, ranges, world.prefix)
    assert frame.schema.simpleString() == kafkas.schema.simpleString()
    assert sorted(found, key=repr) == sorted(kafkas.collect(), key=repr)

    world.publisher.publish([Write(topic, b"k", b"later", (), 1)])
    assert [bytes(row["value"]) for row in due("1ms")[1]] == [b"later"]


def reader(world, **options):
    topic = world.topic("waiting")
    return DueReader(DueOptions({topic: 1}, **options), world.settings)


def planned(reader, start):
    """What a batch from there reads, and where it ends."""
    end = reader.latestOffset(start, None)
    parts = reader.partitions(start, end)
    return [bytes(row[1]) for part in parts for row in reader.read(part)], end


def write(world, *values, partition=0):
    topic = world.topic("waiting")
    # By a new one: a publisher learns of new partitions only after a while.
    publisher = KafkaPublisher(world.settings)
    publisher.publish([Write(topic, None, value, (), partition) for value in values])
    sent = Event()  # they are due a millisecond after they were appended, and the clock is real
    sent.wait(0.01)


def remade(world):
    topic = world.topic("waiting")
    world.admin.client.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in world.admin.names(), 30)
    world.topics.create(topic, 1, {"message.timestamp.type": "LogAppendTime"})


def deleted(world, place, before):
    """As retention does it."""
    for future in world.admin.client.delete_records([KafkasPlace(*place, before)]).values():
        future.result(30)


@pytest.fixture
def waiting(world):
    world.topics.create(world.topic("waiting"), 1, {"message.timestamp.type": "LogAppendTime"})


def test_a_topic_that_was_recreated_is_not_read_on_without_a_word(world, waiting):
    strict = reader(world)
    write(world, *(b"old %d" % number for number in range(20)))
    values, end = planned(strict, strict.initialOffset())
    assert len(values) == 20
    remade(world)
    new = [b"new %d" % number for number in range(30)]
    write(world, *new)
    with pytest.raises(DataLossError, match=r"recreated: .* set failOnDataLoss to false"):
        strict.latestOffset(end, None)
    with pytest.raises(DataLossError):
        strict.partitions(end, end)
    lenient = reader(world, fail_on_data_loss=False)
    values, again = planned(lenient, end)
    assert values == new
    assert planned(strict, again)[0] == []


def test_a_batch_that_is_run_again_does_not_wait_for_what_went_with_its_topic(world, waiting):
    """As after a restart: Spark runs the last batch again from what its checkpoint says."""
    lenient = reader(world, fail_on_data_loss=False)
    start = lenient.initialOffset()
    write(world, *(b"old %d" % number for number in range(20)))
    end = lenient.latestOffset(start, None)
    remade(world)
    write(world, b"new")
    assert lenient.partitions(start, end) == []
    assert planned(lenient, end)[0] == [b"new"]


def test_records_that_the_broker_has_deleted_are_not_passed_over_without_a_word(world, waiting):
    write(world, *(b"%d" % number for number in range(10)))
    strict = reader(world)
    start = strict.initialOffset()
    place = world.places("waiting")[0]
    deleted(world, place, 4)
    with pytest.raises(DataLossError, match="0 to 3, which the broker has deleted"):
        strict.latestOffset(start, None)
    values, _ = planned(reader(world, fail_on_data_loss=False), start)
    assert values == [b"%d" % number for number in range(4, 10)]


def test_an_added_partition_is_read_from_its_beginning(world, waiting):
    write(world, b"first")
    due = reader(world)
    _, end = planned(due, due.initialOffset())
    topic = world.topic("waiting")
    world.admin.client.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    wait_until(lambda: len(world.admin.topic(topic).partitions) == 2, 30)
    write(world, b"gone", b"there", partition=1)
    deleted(world, world.places("waiting")[1], 1)
    assert planned(due, end)[0] == [b"there"]


def test_mistakes_in_its_options_are_reported_before_anything_is_read(spark_session):
    spark_session.dataSource.register(DueSource)
    query = spark_session.readStream.format("redrive-due").option("topic", "x").load()
    with pytest.raises(PySparkException, match="topics is missing"):
        query.writeStream.format("noop").start().awaitTermination(60)
