"""What is found, and who is blamed, when a job of Spark's fails."""

from __future__ import annotations

import privates
import pytest
from frame_batches import HEAD, module_of, run_through, spec_of

from redrive.engines.spark.frames import frame_session, reading
from redrive.engines.spark.frames.batch import Batches
from redrive.engines.spark.handle import RunError
from redrive.engines.spark.ranges import Range
from redrive.envelope import parse

DEADLY = (
    HEAD
    + """
    class Rejected(Exception):
        pass

    app = App(NAME, retry=RetryPolicy("1s", bury_on=[Rejected]))

    def judged(value):
        if value == "exit":
            note(death=value)
            os._exit(9)
        if value == "raise":
            raise ValueError("mine")
        if value == "never":
            raise Rejected("of no use")
        return value

    @app.frame(topic("in"))
    def handle(frame):
        told = F.udf(judged, "string")(F.col("value").cast("string"))
        return frame.withColumn("outcome", send(topic("out"), "key", told))
"""
)


def test_a_row_that_kills_its_python_is_buried_and_one_that_raises_is_the_policys(
    world, spark_session
):
    target = world.app(DEADLY, partitions=1)
    world.create(world.topic("out"))
    world.send("in", b"exit", b"raise", b"a", b"never")
    batches = Batches(spark_session, world.loaded(target), spec_of(world, target), "main")
    reports = run_through(world, batches, 4)
    assert [report.trouble or report.fatal for report in reports if report.trouble] == []
    assert world.values("out") == [b"a"]
    letters = {letter.value: parse(letter.headers) for letter in world.records("dead")}
    assert {value: letter.dead_reason for value, letter in letters.items()} == {
        b"exit": "killed-worker",
        b"never": "not-retryable",
    }
    assert letters[b"never"].error_type == f"{module_of(target).__name__}.Rejected"
    assert len(world.notes()) >= 2  # only on proof
    (waiting,) = world.records("retry.1s")
    assert waiting.value == b"raise"
    failed = parse(waiting.headers)
    assert (failed.error_type, failed.error_message) == ("ValueError", "mine")


MISTAKEN = (
    HEAD
    + """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.frame(topic("in"))
    def handle(frame):
        return frame.withColumn("outcome", send(topic("out"), "key", "value".cast("string")))
"""
)


def test_a_mistake_in_the_handlers_own_python_ends_the_run_with_its_line(world, start):
    run = start(world.app(MISTAKEN, partitions=1), until="empty")
    world.send("in", b"a")
    with pytest.raises(RunError) as raised:
        run.handle.await_termination(120)
    told = str(raised.value)
    assert "AttributeError: 'str' object has no attribute 'cast'" in told
    assert 'return frame.withColumn("outcome", send(topic("out"), "key", "value".cast' in told
    assert [place.offset for place in world.committed("in").values()] == [0]
    assert world.count("dead") == 0


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
    frame_session.prepare(spark_session)
    kafka = reading.read(
        spark_session, world.settings, [Range(world.topic("in"), 0, 0, 0)], world.prefix
    )
    plan = privates.execution_of(kafka).executedPlan().toString()
    assert "KafkaTable" in plan  # by the newer way, which makes no objects for users on the way
    reports = run_through(world, Batches(spark_session, world.loaded(target), spec, "main"), 3000)
    # In lots of Arrow's: few rows while nobody knows how heavy they are.
    assert [report.end for report in reports] == [200, 2200, 3000]
    assert world.values("out") == values


def consumers(spark_session, group):
    """The Java consumers of this JVM whose group begins so, by the names of their beans."""
    gateway, jvm = privates.gateway(spark_session), privates.jvm(spark_session)
    name = jvm.javax.management.ObjectName(f"kafka.consumer:type=app-info,id=consumer-{group}-*")
    types = gateway.new_array(jvm.java.lang.Class, 2)
    given = gateway.new_array(jvm.java.lang.Object, 2)
    types[0], given[0] = name.getClass(), name
    types[1] = jvm.java.lang.Class.forName("javax.management.QueryExp")
    server = jvm.java.lang.Class.forName("javax.management.MBeanServer")
    beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    return {each.toString() for each in server.getMethod("queryNames", types).invoke(beans, given)}


def test_consumers_are_kept_from_batch_to_batch_and_spark_does_not_warn_of_it(world, spark_session):
    target = world.app(SLOW, partitions=1)
    world.create(world.topic("out"))
    world.send("in", *[b"v"] * 30)
    frame_session.prepare(spark_session)
    app = world.loaded(target)
    batches = Batches(spark_session, app, spec_of(world, target), "main")
    kept = []
    for start in (0, 10, 20):
        (report,) = batches.run([Range(world.topic("in"), 0, start, start + 10)])
        assert (report.fatal, report.trouble, report.end) == ("", "", start + 10)
        kept.append(consumers(spark_session, app.name))
    assert len(kept[0]) == 1
    assert kept[0] == kept[1] == kept[2]
    log4j = privates.jvm(spark_session).org.apache.logging.log4j
    source = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
    assert log4j.LogManager.getLogger(source).getLevel().toString() == "ERROR"


EXITS = (
    HEAD
    + """
    import sys

    app = App(NAME)

    @app.frame(topic("in"))
    def exits(frame):
        sys.exit("no table to join with")
"""
)


def test_a_handler_that_exits_ends_the_run_and_not_only_its_thread(world, start):
    target = world.app(EXITS)
    world.send("in", b"1")
    run = start(target)
    with pytest.raises(RunError, match=r"SystemExit.*no table to join with"):
        run.handle.await_termination(120)
