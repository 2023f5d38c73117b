"""Tasks that are left over: of a run before they do no harm, of this run they cost a moment."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from frame_batches import HEAD, spec_of

from redrive.engines.spark import marks
from redrive.engines.spark.frames.sink import Sink
from redrive.engines.spark.ranges import Range
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.transactional_producer import TransactionalProducer
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


def mark(world, place: TopicPartition, run: str) -> None:
    """What the planner of a run commits before its tasks run."""
    progress = KafkaProgress(world.settings, world.prefix, admin=world.admin)
    progress.commit({place: marks.labelled(Position(0), topic_id="", run=run)})


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

    return place, rival, sink


def test_a_task_that_is_left_over_from_a_run_before_fences_nobody_off(world):
    place, rival, sink = prepared(world)
    mark(world, place, "2-new")
    theirs = rival()
    report = sink("1-old").deliver(iter([done(place, 0), done(place, 1)]))
    assert "another run" in report.fatal
    theirs.commit([Write(world.topic("out"), None, b"theirs")], {place: Position(1)})
    assert world.values("out") == [b"theirs"]


def test_a_task_that_is_fenced_off_by_a_newer_run_ends_the_run(world):
    place, rival, sink = prepared(world)

    def rows() -> Iterator[pa.RecordBatch]:
        yield done(place, 0)
        mark(world, place, "2-new")
        rival()
        yield done(place, 1)

    report = sink("1-old").deliver(rows())
    assert "another run" in report.fatal
    assert world.committed("in")[place].offset == 0


def test_a_task_that_is_fenced_off_by_one_that_was_given_up_is_tried_again(world):
    place, rival, sink = prepared(world)
    mark(world, place, "1-this")

    def rows() -> Iterator[pa.RecordBatch]:
        yield done(place, 0)
        rival()
        yield done(place, 1)

    report = sink("1-this").deliver(rows())
    assert report.fatal == ""
    assert "had given up" in report.trouble
    assert world.committed("in")[place].offset == 0
    again = sink("1-this").deliver(iter([done(place, 0), done(place, 1)]))
    assert (again.trouble, again.end) == ("", 2)
