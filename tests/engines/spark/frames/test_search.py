"""What is found, and who is blamed, when a job of Spark's fails."""

from __future__ import annotations

from frame_batches import HEAD, run_through, spec_of

from redrive.engines.spark.frames import reading, ready
from redrive.engines.spark.frames.batch import Batches
from redrive.engines.spark.ranges import Range
from redrive.envelope import parse

DEADLY = (
    HEAD
    + """
    app = App(NAME, retry=RetryPolicy("1s"))

    def judged(value):
        if value == "exit":
            note(death=value)
            os._exit(9)
        if value == "raise":
            raise ValueError("mine")
        return value

    @app.frame(topic("in"))
    def handle(frame):
        told = F.udf(judged, "string")(F.col("value").cast("string"))
        return frame.withColumn("outcome", send(topic("out"), "key", told))
"""
)


def test_a_row_that_kills_its_python_is_buried_and_one_that_raises_is_parked(world, spark_session):
    target = world.app(DEADLY, partitions=1)
    world.create(world.topic("out"))
    world.send("in", b"exit", b"raise", b"a")
    batches = Batches(spark_session, world.loaded(target), spec_of(world, target), "main")
    reports = run_through(world, batches, 3)
    assert [report.trouble or report.fatal for report in reports if report.trouble] == []
    assert world.values("out") == [b"a"]
    (letter,) = world.records("dead")
    assert (letter.value, parse(letter.headers).dead_reason) == (b"exit", "killed-worker")
    assert len(world.notes()) >= 2  # only on proof
    (waiting,) = world.records("retry.1s")
    assert waiting.value == b"raise"
    assert parse(waiting.headers).error_message == "ValueError: mine"


BROKEN_TABLE = (
    HEAD
    + """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.frame(topic("in"))
    def handle(frame):
        table = frame.sparkSession.range(3).selectExpr("CAST(concat('x', id) AS int) AS number")
        rows = frame.join(F.broadcast(table), F.col("offset") == F.col("number"), "left")
        return rows.withColumn("outcome", done())
"""
)


def test_nobody_is_buried_for_a_table_that_cannot_be_read(world, spark_session):
    target = world.app(BROKEN_TABLE, partitions=1)
    world.send("in", b"a")
    batches = Batches(spark_session, world.loaded(target), spec_of(world, target), "main")
    (report,) = run_through(world, batches, 1)
    assert "fails also without any record" in report.trouble
    assert world.count("dead") == 0
    assert world.committed("in") == {}


SLOW = (
    HEAD
    + """
    app = App(NAME)

    @app.frame(topic("in"))
    def handle(frame):
        return frame.withColumn("outcome", send(topic("out"), "key", "value"))
"""
)


def test_at_its_deadline_a_batch_ends_and_the_rest_is_planned_again(world, spark_session):
    target = world.app(SLOW, partitions=1)
    world.create(world.topic("out"))
    values = [b"%d" % number for number in range(3000)]
    world.send("in", *values)
    spec = spec_of(world, target, batch_deadline=0)
    ready.prepare(spark_session)
    kafka = reading.read(spark_session, world.settings, [Range(world.topic("in"), 0, 0, 0)])
    plan = kafka._jdf.queryExecution().executedPlan().toString()
    assert "KafkaTable" in plan  # by the newer way, which makes no objects for users on the way
    reports = run_through(world, Batches(spark_session, world.loaded(target), spec, "main"), 3000)
    assert [report.end for report in reports] == [2000, 3000]  # in lots of Arrow's
    assert world.values("out") == values
