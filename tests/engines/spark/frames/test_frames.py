"""Frame handlers on a real Spark and a real Kafka."""

from __future__ import annotations

import json

import pytest
from frame_batches import HEAD, module_of, spec_of
from running import gauges

from redrive.engines.spark.frames.batch import Batches
from redrive.engines.spark.ranges import Range
from redrive.envelope import parse
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.record import TopicPartition, Write

COPY = (
    HEAD
    + """
    app = App(NAME, delivery={delivery!r})

    @app.frame(topic("in"))
    def copy(frame):
        return frame.withColumn("outcome", send(topic("out"), "key", "value", F.col("headers")))
"""
)


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_copy_passes_every_record_and_every_gap(world, start, delivery):
    target = world.app(COPY.format(delivery=delivery))
    world.create(world.topic("out"), 2)
    headers = (("user", b"kept"), ("user", None))
    values = [b"%d" % number for number in range(500)]
    written = [
        Write(world.topic("in"), value, value, headers, number % 2)
        for number, value in enumerate(values)
    ]
    world.publisher.publish(written[:300])
    # What is taken back and the marks of transactions leave gaps, also at the end.
    producer = TransactionalProducer(world.settings, world.prefix, TopicPartition("source", 0))
    producer.commit(written[300:], {})
    run = start(target, until="empty")
    assert run.handle.await_termination(120)
    assert sorted(world.values("out")) == sorted(values)
    assert {record.headers for record in world.records("out")} == {headers}
    assert world.lag("in") == 0
    assert run.handle.figures.total("done") == 500


LOSING = (
    HEAD
    + """
    app = App(NAME, delivery={delivery!r})

    def seen(value):
        note(value=bytes(value).decode())
        return bytes(value)

    @app.frame(topic("in"))
    def copy(frame):
        lost = send(topic("gone"), "key", F.udf(seen, "binary")("value"))
        outcome = F.when(F.col("value").cast("string").startswith("lost"), lost)
        return frame.withColumn("outcome", outcome.otherwise(send(topic("out"), "key", "value")))
"""
)


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_rows_whose_topic_is_missing_wait_and_are_not_computed_meanwhile(world, start, delivery):
    def publish(partition, *values):
        source = world.topic("in")
        world.publisher.publish([Write(source, None, value, (), partition) for value in values])

    def lost():
        return [each for each in world.notes() if each["value"].startswith("lost")]

    target = world.app(LOSING.format(delivery=delivery))
    world.create(world.topic("out"))
    publish(0, b"first", b"lost 1", b"lost 2", b"last")
    run = start(target)
    world.wait(run, "the refusal", lambda: run.handle.refused == 2)
    assert "does not exist" in run.handle.refusal
    assert world.values("out") == [b"first"]
    before = lost()
    # However often others run meanwhile.
    for number in range(1, 4):
        publish(1, b"%d" % number)
        world.wait(run, "the others", lambda n=number: len(world.values("out")) == n + 1)
        assert run.handle.refused == 2
    assert lost() == before
    world.create(world.topic("gone"))
    world.wait(run, "the writes", lambda: world.lag("in") == 0)
    world.wait(run, "its report", lambda: run.handle.figures.total("done") == 7)
    run.stop()
    assert world.values("gone") == [b"lost 1", b"lost 2"]
    assert sorted(world.values("out")) == [b"1", b"2", b"3", b"first", b"last"]
    assert run.handle.refused == 0


WAITS = (
    HEAD
    + """
    app = App(NAME, retry=RetryPolicy("500ms 1h"))

    def slow(value, attempt):
        while attempt == 2 and not Path(NOTES).with_name("go").exists():
            time.sleep(0.05)
        return value

    @app.frame(topic("in"))
    def orders(frame):
        value = F.udf(slow, "string")(F.col("value").cast("string"), F.col("redrive.attempt"))
        outcome = F.when(value == "never", park("later")).otherwise(done())
        return frame.withColumn("outcome", outcome)
"""
)


def test_what_is_due_and_not_handled_is_counted_apart_from_what_only_waits(world, start):
    target = world.app(WAITS, partitions=1)
    soon, late = world.topic("retry.500ms"), world.topic("retry.1h")
    world.send("in", b"never", b"at once")
    run = start(target)
    world.wait(run, "it is due", lambda: gauges(run, "due_records").get(soon) == 1, timeout=120)
    world.wait(run, "for a while", lambda: gauges(run, "due_age_seconds")[soon] > 0.1)
    (world.folder / "go").touch()
    world.wait(run, "it waits", lambda: gauges(run, "parked_records") == {soon: 0, late: 1})
    assert gauges(run, "due_records") == {soon: 0, late: 0}
    assert gauges(run, "next_due_timestamp_seconds").keys() == {late}
    run.stop()


ORDERS = (
    HEAD
    + """
    app = App(NAME, delivery="transaction", retry=RetryPolicy("500ms 500ms"))

    @app.frame(topic("in"))
    def orders(frame):
        number = F.col("value").cast("string").cast("int")
        customers = frame.sparkSession.read.schema("id int, name string").json(CUSTOMERS)
        joined = frame.withColumn("id", number).join(F.broadcast(customers), "id", "left")
        seen = F.to_json(F.struct("topic", "partition", "offset", "redrive.attempt",
                                  "redrive.error", "name"))
        told = send(topic("out"), "key", seen)
        outcome = (
            F.when(F.col("id") < 0, bury("negative"))
            .when(F.col("id") == 0, done())
            .when(F.col("name").isNull(), park("unknown customer"))
            .otherwise(send_all(told, send(topic("copy"), "key", "value")))
        )
        return joined.withColumn("outcome", outcome)

    CUSTOMERS = os.path.join(os.path.dirname(NOTES), "customers")
"""
)


def test_parked_rows_succeed_once_their_table_has_changed_and_a_bad_cast_is_buried(
    world, start, caplog
):
    caplog.set_level("INFO", "redrive.causes")
    customers = world.folder / "customers"
    customers.mkdir()
    (customers / "1.json").write_text('{"id": 1, "name": "Ada"}\n')
    target = world.app(ORDERS)
    world.create(world.topic("out"))
    world.create(world.topic("copy"))
    values = [b"1", b"2", b"-7", b"0", b"3", b"not a number", *[b"1"] * 3]
    headers = (("user", b"kept"),)
    world.publisher.publish([Write(world.topic("in"), b"k", v, headers, 1) for v in values])
    run = start(target)
    world.wait(run, "two are parked", lambda: world.count("retry.500ms") >= 2, timeout=120)
    (customers / "2.json").write_text('{"id": 2, "name": "Bob"}\n')
    world.wait(run, "three are buried", lambda: len(world.records("dead")) >= 3, timeout=120)
    world.wait(run, "all others are sent", lambda: len(world.values("out")) >= 5, timeout=60)
    run.stop()

    sent = [json.loads(value or b"") for value in world.values("out")]
    assert len(sent) == len(world.values("copy")) == 5
    assert sorted(one["offset"] for one in sent) == [0, 1, 6, 7, 8]
    (late,) = [one for one in sent if one["name"] == "Bob"]
    assert (late["topic"], late["partition"], late["offset"]) == (world.topic("in"), 1, 1)
    assert late["attempt"] in (2, 3)
    assert late["error"].endswith("Retry: unknown customer")

    letters = {record.value: record for record in world.records("dead")}
    reasons = {value: parse(letter.headers).dead_reason for value, letter in letters.items()}
    assert reasons == {b"-7": "rejected", b"not a number": "failed-expression", b"3": "exhausted"}
    assert "CAST_INVALID_INPUT" in (parse(letters[b"not a number"].headers).error_message or "")
    assert all(headers[0] in letter.headers for letter in letters.values())
    assert all(letter.key == b"k" for letter in letters.values())
    assert len(world.records("dead")) == 3
    late = list(run.handle.figures.lateness)
    assert len(late) >= 2
    assert min(late) >= 0  # never early

    why = [line for line in caplog.records if line.name == "redrive.causes"]
    assert {(line.outcome, line.reason) for line in why} >= {
        ("park", ""), ("bury", "rejected"), ("bury", "failed-expression"), ("bury", "exhausted")
    }  # fmt: skip
    assert gauges(run, "due_records") == gauges(run, "parked_records")
    assert gauges(run, "due_records") == {world.topic("retry.500ms"): 0}


MISTAKEN = (
    HEAD
    + """
    app = App(NAME)
    MISTAKES = {
        "a shuffle": lambda frame: frame.repartition(3).withColumn("outcome", done()),
        "coalesce": lambda frame: frame.coalesce(1).withColumn("outcome", done()),
        "a union": lambda frame: frame.union(frame).withColumn("outcome", done()),
        "a join that is not broadcast": lambda frame: frame.join(
            frame.sparkSession.range(9).hint("merge"), F.col("offset") == F.col("id")
        ).withColumn("outcome", done()),
        "the broadcast side": lambda frame: frame.sparkSession.range(3).join(
            F.broadcast(frame), F.col("offset") == F.col("id")
        ).withColumn("outcome", done()),
        "the last row is missing": lambda frame: frame.where("offset < 2").withColumn(
            "outcome", done()
        ),
        "cached": lambda frame: frame.cache().withColumn("outcome", done()),
        "a park in an array": lambda frame: frame.withColumn(
            "outcome", send_all(send("x", "key", "value"), park("?"))
        ),
        "a row is doubled": lambda frame: frame.withColumn(
            "n", F.explode(F.expr("sequence(0, int(offset = 1))"))
        ).withColumn("outcome", done()),
        "no such column": lambda frame: frame.withColumn("outcome", F.col("nothing")),
        "redrive is gone": lambda frame: frame.drop("redrive").withColumn("outcome", done()),
        "redrive is another": lambda frame: frame.withColumn("redrive", F.lit(1)).withColumn(
            "outcome", F.lit("done")
        ),
        "no frame": lambda frame: 7,
    }
    mistake = ""

    @app.frame(topic("in"))
    def handle(frame):
        return MISTAKES[mistake](frame)
"""
)
SENTENCES = {
    "a shuffle": "its plan has a shuffle",
    "coalesce": "its plan has coalesce",
    "a union": "its plan has a union",
    "a join that is not broadcast": "its plan has a shuffle",
    "the broadcast side": "broadcast side of a join",
    "the last row is missing": "[0]@2: it must return every row once",
    "cached": "must not be cached",
    "a park in an array": "[0]@0 with several outcomes",
    "a row is doubled": "[0]@1 twice, or out of order",
    "no such column": "nothing",
    "redrive is gone": 'has no column "redrive"',
    "redrive is another": "make it with redrive.spark.done()",
    "no frame": "it returned int, not a DataFrame",
}


def test_a_mistake_is_reported_in_a_sentence_and_nothing_is_passed(world, spark_session):
    target = world.app(MISTAKEN, partitions=1)
    app, module = world.loaded(target), module_of(target)
    world.send("in", b"a", b"b", b"c")
    spec = spec_of(world, target)
    told = {}
    for mistake in SENTENCES:
        module.mistake = mistake
        batches = Batches(spark_session, app, spec, "main")
        (report,) = batches.run([Range(world.topic("in"), 0, 0, 3)])
        told[mistake] = report.fatal
    assert {each: text for each, text in told.items() if SENTENCES[each] not in text} == {}
    assert world.committed("in") == {}
