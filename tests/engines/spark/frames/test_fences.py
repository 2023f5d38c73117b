"""Tasks that are left over: of a run before they do no harm, of this run they cost a moment."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from frame_batches import HEAD, spec_of

from redrive.engines.spark.frames.sink import Sink
from redrive.engines.spark.planner import RUN_MARK
from redrive.engines.spark.ranges import Range
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.transactions import TransactionalProducer
from redrive.ports import Position
from redrive.record import TopicPartition, Write

COPY = (
    HEAD
    + """
    app = App(NAME, delivery="transaction")

    @app.frame(topic("in"))
    def copy(frame):
        return frame.withColumn("outcome", done())
"""
)
SCHEMA = {
    "number": pa.int64(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "due": pa.int64(),
    "kind": pa.string(),
    "sends": pa.list_(pa.struct([(name, pa.binary()) for name in ("topic", "key", "value", "h")])),
    "failed": pa.list_(pa.struct([("reason", pa.string())])),
}


def done(place: TopicPartition, offset: int) -> pa.RecordBatch:
    row = {"number": offset, "topic": place.topic, "partition": 0, "offset": offset, "kind": "done"}
    return pa.RecordBatch.from_pylist([row], pa.schema(SCHEMA))


def mark(world, target, run: str) -> None:
    dead = TopicPartition(world.loaded(target).dead_topic, 0)
    progress = KafkaProgress(world.settings, world.prefix, admin=world.admin)
    progress.commit({dead: Position(0, RUN_MARK + run)})


def prepared(world):
    target = world.app(COPY, partitions=1)
    world.create(world.topic("out"))
    world.send("in", b"a", b"b")
    (place,) = world.places("in")

    def rival() -> TransactionalProducer:
        return TransactionalProducer(world.settings, world.prefix, place)

    def sink(run: str) -> Sink:
        spec = spec_of(world, target, run=run)
        return Sink(spec, {place: Range(*place, 0, 2)}, "id", 0)

    return target, place, rival, sink


def test_a_task_that_is_left_over_from_a_run_before_fences_nobody_off(world):
    target, place, rival, sink = prepared(world)
    mark(world, target, "new")
    theirs = rival()
    report = sink("old").deliver(iter([done(place, 0), done(place, 1)]))
    assert "another run" in report.fatal
    theirs.commit([Write(world.topic("out"), None, b"theirs")], {place: Position(1)})
    assert world.values("out") == [b"theirs"]


def test_a_task_that_is_fenced_off_by_a_newer_run_ends_the_run(world):
    target, place, rival, sink = prepared(world)

    def rows() -> Iterator[pa.RecordBatch]:
        yield done(place, 0)
        mark(world, target, "new")
        rival()
        yield done(place, 1)

    report = sink("old").deliver(rows())
    assert "another run" in report.fatal
    assert world.committed("in") == {}


def test_a_task_that_is_fenced_off_by_one_that_was_given_up_is_tried_again(world):
    target, place, rival, sink = prepared(world)
    mark(world, target, "this")

    def rows() -> Iterator[pa.RecordBatch]:
        yield done(place, 0)
        rival()
        yield done(place, 1)

    report = sink("this").deliver(rows())
    assert report.fatal == ""
    assert "had given up" in report.trouble
    assert world.committed("in") == {}
    again = sink("this").deliver(iter([done(place, 0), done(place, 1)]))
    assert (again.trouble, again.end) == ("", 2)
