"""Dead letters on Spark: the same answers as without it, of real Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import letters as foreign
import privates
import pytest

from redrive.config import load_settings
from redrive.dead import Filter, open_letters
from redrive.engines.spark.dead.letters import SparkLetters
from redrive.engines.spark.dead.source import Reader
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.record import Write

SIZE = 12
"""Offsets per task, so that there are several for each partition."""


@pytest.fixture
def buried(shop):
    """An app's letters of two causes in several partitions, of which some have marks."""
    made = shop()
    made.bury([f"{('bad', 'missing')[n % 2]} {n}" for n in range(60)])
    places = [found.letter.place for found in made.letters.some(limit=40)[0]]
    made.operator().discard(Filter(places=tuple(places[5:12])), "not needed")
    made.operator().replay(Filter(places=tuple(places[20:31])))
    return made


def on_spark(spark, made, **options):
    return SparkLetters(spark, made.letters, made.settings, **{"size": SIZE, **options})


def groups_of(answer):
    found, scanned = answer
    return [each.as_data() for each in found], scanned.as_data()


def stats_of(answer):
    found, scanned = answer
    return found.as_data(), scanned.as_data()


def test_groups_and_stats_are_those_of_the_local_scan(buried, spark_session):
    spark = on_spark(spark_session, buried)
    assert len(spark.plan()) > 4, "more parts than partitions"
    assert groups_of(spark.groups()) == groups_of(buried.letters.groups())
    wanted = Filter(
        states=("open", "discarded"), errors=("KeyError",), keys=("k3", "k5"), attempts=2
    )
    assert groups_of(spark.groups(wanted)) == groups_of(buried.letters.groups(wanted))
    assert stats_of(spark.stats(wanted)) == stats_of(buried.letters.stats(wanted))


def exported_locally(letters, wanted, folder):
    out = folder / "local.json"
    with out.open("w") as file:
        letters.export(file, wanted)
    return sorted(out.read_text().splitlines())


def test_an_export_has_the_same_lines_and_says_when_it_is_complete(buried, spark_session, tmp_path):
    wanted = Filter(states=("open", "discarded"))
    there = tmp_path / "there"
    scanned = on_spark(spark_session, buried).export(str(there), "json", wanted)
    files = [*there.glob("part-*")]
    lines = sorted(line for each in files for line in each.read_text().splitlines())
    assert lines == exported_locally(buried.letters, wanted, tmp_path)
    assert (there / "_SUCCESS").exists()
    assert len(files) > 3, "written by several tasks"
    assert (scanned.scanned, scanned.matched, scanned.complete) == (60, 49, True)
    with pytest.raises(ConfigurationError, match="exists already"):
        on_spark(spark_session, buried).export(str(there), "json", wanted)


def as_json(row):
    """A row of Parquet as the export in JSON has it: all these bytes are text."""
    data = row.asDict(recursive=True)
    for each in (data, *data["headers"]):
        for name in ("key", "value"):
            if isinstance(each.get(name), bytes | bytearray):
                each[name] = bytes(each[name]).decode()
    return json.dumps(data, sort_keys=True)


def test_parquet_has_the_same_fields(buried, spark_session, tmp_path):
    there = str(tmp_path / "there")
    on_spark(spark_session, buried).export(there, "parquet")
    rows = spark_session.read.parquet(there)
    types = dict(rows.dtypes)
    assert (types["key"], types["value"]) == ("binary", "binary")
    assert types["headers"] == "array<struct<name:string,value:binary>>"
    assert (Path(there) / "_SUCCESS").exists()
    lines = exported_locally(buried.letters, Filter(), tmp_path)
    expected = sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)
    assert sorted(as_json(row) for row in rows.collect()) == expected


def test_letters_of_others_in_all_dialects(redrive_stack, redrive_prefix, spark_session, tmp_path):
    settings = load_settings({"bootstrap": redrive_stack.bootstrap}, environ={})
    topic = f"{redrive_prefix}.DLT"
    KafkaTopics(settings).create(topic, 3, {})
    kinds = (foreign.SPRING, foreign.CONNECT, foreign.STREAMS, foreign.SMALLRYE, foreign.SHARE, ())
    publisher = KafkaPublisher(settings)
    publisher.publish(
        [
            Write(topic, b"k%d" % n, b"\xff\x00%d" % n, kinds[n % len(kinds)], partition=n % 3)
            for n in range(24)
        ]
    )
    publisher.publish([Write(topic, None, None, (("h", None),))])
    publisher.close()
    for dialect in ("auto", "spring"):
        letters = open_letters(None, settings, topic=topic, dialect=dialect)
        spark = SparkLetters(spark_session, letters, settings, size=3)
        assert stats_of(spark.stats()) == stats_of(letters.stats())
    assert groups_of(spark.groups()) == groups_of(letters.groups())
    there = tmp_path / "there"
    spark.export(str(there), "parquet")
    values = [row.value for row in spark_session.read.parquet(str(there)).collect()]
    assert sorted(values, key=str) == sorted(
        [None, *(bytearray(b"\xff\x00%d" % n) for n in range(24))], key=str
    )


def test_what_retention_deletes_between_planning_and_reading_is_counted(buried, spark_session):
    class Late(SparkLetters):
        def plan(self, wanted=None):
            parts = super().plan(wanted)
            bounds = {each.partition: each.end for each in parts}
            admin = Admin(buried.settings)
            delete_before(admin, buried.app.dead_topic, {0: bounds[0], 1: bounds[1] - 2})
            return parts

    spark = Late(spark_session, buried.letters, buried.settings, size=SIZE)
    ends = {each.partition: each.end for each in on_spark(spark_session, buried).plan()}
    groups, scanned = spark.groups()
    assert scanned.deleted == ends[0] + ends[1] - 2
    assert scanned.scanned == 60 - scanned.deleted == sum(each.count for each in groups)
    assert groups_of((groups, scanned))[0] == groups_of(buried.letters.groups())[0]


def delete_before(admin, topic, offsets):
    from confluent_kafka import TopicPartition

    def delete(client):
        asked = [TopicPartition(topic, *each) for each in offsets.items()]
        return [each.result() for each in client.delete_records(asked).values()]

    admin.ask("delete records", delete)


def test_a_task_that_is_run_again_counts_once(buried, spark_session, tmp_path):
    class Failing(Reader):
        def read(self, partition):
            from pyspark import TaskContext

            yield from super().read(partition)
            if partition.value.number % 2 == 0 and TaskContext.get().attemptNumber() == 0:
                raise OSError("the machine is gone")

    flaky = on_spark(spark_session, buried, reader=Failing)
    assert groups_of(flaky.groups()) == groups_of(buried.letters.groups())
    scanned = flaky.export(str(tmp_path / "there"), "json")
    files = [*(tmp_path / "there").glob("part-*")]
    lines = [line for each in files for line in each.read_text().splitlines()]
    assert len(lines) == scanned.scanned == scanned.matched == 60


def test_an_export_that_fails_is_not_complete(buried, spark_session, tmp_path):
    class Failing(Reader):
        def read(self, partition):
            yield from super().read(partition)
            if partition.value.number == 3:
                raise OSError("the disk is full")

    there = tmp_path / "there"
    with pytest.raises(RedriveError, match="the disk is full"):
        on_spark(spark_session, buried, reader=Failing).export(str(there), "json")
    assert not (there / "_SUCCESS").exists()


def test_marks_come_with_their_parts_however_many_there_are(buried, spark_session):
    from redrive.dead.states import Mark

    known = buried.letters.known()
    # More than a megabyte, which Spark hands on in another way; most of no letter that is there.
    for offset in range(1000, 150_000):
        known.marks.add(0, offset, Mark("discarded", ("discard-1",)))
    letters = buried.letters
    letters.known = lambda: known
    spark = SparkLetters(spark_session, letters, buried.settings, size=SIZE)
    assert stats_of(spark.stats()) == stats_of(buried.letters.stats())


def test_no_plan_that_spark_shows_has_the_password_in_it(
    spark_session, redrive_secure_stack, redrive_prefix
):
    mine = load_settings(redrive_secure_stack.settings, environ={})
    KafkaTopics(mine).create(f"{redrive_prefix}.dead", 1, {})
    letters = open_letters(None, mine, topic=f"{redrive_prefix}.dead")
    spark = SparkLetters(spark_session, letters, mine)
    rows = spark.rows("groups", spark.plan(), None)
    password = mine.security.password.reveal()
    modes = privates.jvm(spark_session).org.apache.spark.sql.execution.ExplainMode
    for mode in ("simple", "extended", "formatted", "cost", "codegen"):
        shown = privates.execution_of(rows).explainString(modes.fromString(mode))
        assert "redrive-dead-groups" in shown
        assert password not in shown
    assert spark.groups()[0] == []
