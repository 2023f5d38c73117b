"""`redrive-due` keeps the contract of Spark's Kafka source, with the time of each record."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from redrive.engines.spark.frames.reading import read
from redrive.engines.spark.ranges import Range
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


def test_mistakes_in_its_options_are_told_before_anything_is_read(spark_session):
    spark_session.dataSource.register(DueSource)
    query = spark_session.readStream.format("redrive-due").option("topic", "x").load()
    with pytest.raises(PySparkException, match="topics is missing"):
        query.writeStream.format("noop").start().awaitTermination(60)
