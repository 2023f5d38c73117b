"""Frames against Spark's own copy from Kafka to Kafka, and what each stage of them takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import monotonic

import psutil
import pyarrow as pa
from pyspark import cloudpickle
from spark.world import PARTITIONS, Figure, World, rate_figures, tell

import redrive.spark
from redrive.engines.spark.frames import batch, intake, reading
from redrive.engines.spark.frames.intake import Rules
from redrive.engines.spark.ranges import Range
from redrive.record import Write

RECORDS = 400_000
ROUNDS = 4
LIMITS = {"at-least-once": 0.8, "transaction": 0.6}
MEMORY = 1.15
"""How much larger all processes may be at the end than after the second round."""

APP = """
from redrive import App
from redrive.spark import send

app = App({name!r}, delivery={delivery!r})


@app.frame("bench-frames-in")
def copy(frame):
    return frame.withColumn("outcome", send({out!r}, "key", "value"))
"""


def run(world: World) -> bool:
    """Measure; gives whether the limits were kept."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    world.topic("bench-frames-in")
    value = b"x" * 200
    for start in range(0, RECORDS, 50_000):
        numbers = range(start, start + 50_000)
        world.publisher.publish(
            [Write("bench-frames-in", b"%d" % n, value, (), n % PARTITIONS) for n in numbers]
        )
    rates: dict[str, list[float]] = {"bare": [], "at-least-once": [], "transaction": []}
    sizes: list[int] = []
    for number in range(ROUNDS):  # the first round warms everybody up
        rates["bare"].append(_bare(world, number))
        for delivery in LIMITS:
            rates[delivery].append(_frames(world, number, delivery))
        sizes.append(_memory())
    return _tell(world, rates, sizes)


def _tell(world: World, rates: dict[str, list[float]], sizes: list[int]) -> bool:
    best = {name: max(found[1:]) for name, found in rates.items()}
    print(f"copy of {RECORDS:,} records of 200 bytes, {PARTITIONS} partitions, in columns;")
    print(f"between the first and the last record's arrival; best of {ROUNDS - 1} after a warm-up")
    figures = rate_figures(best, LIMITS, "Spark's own")
    growth = sizes[-1] / sizes[1]
    told = f"{sizes[1] >> 20:,} to {sizes[-1] >> 20:,} MiB"
    figures.append(Figure("memory", told, f"at most {MEMORY} times", growth <= MEMORY))
    kept = tell(figures)
    print("share of each stage of one batch, at least once, warm")
    return tell(_stages(world)) and kept


def _frames(world: World, number: int, delivery: str) -> float:
    name = f"bench-frames-{delivery}-{number}"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery=delivery, out=out))
    handle = redrive.spark.start(
        world.spark, target, bootstrap=world.settings.servers(), until="once"
    )
    handle.await_termination(300)
    handle.stop()
    return _rate(world, out)


def _bare(world: World, number: int) -> float:
    out = world.topic(f"bench-frames-bare-{number}-out")
    servers = world.settings.servers()
    rows = (
        world.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "bench-frames-in")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", out)
        .option("checkpointLocation", str(world.folder / f"frames-bare-{number}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    return _rate(world, out)


def _rate(world: World, topic: str) -> float:
    times = [record.timestamp or 0 for record in world.read(topic)]
    assert len(times) == RECORDS, (topic, len(times))
    return RECORDS / (max(times) - min(times)) * 1000


def _stages(world: World) -> list[Figure]:
    """Each stage by what it adds to the ones before it."""
    topic = "bench-frames-in"
    ends = {place: world.log.bounds(place) for place in world.places(topic)}
    ranges = [Range(*place, *bounds) for place, bounds in ends.items()]
    rules = Rules(app="bench", topic=topic, topic_id="id", now=world.now())

    def read() -> object:
        return reading.read(world.spark, world.settings, ranges)

    def decided() -> object:
        # With the handler's part: what it does not use, Spark does not compute.
        outcome = redrive.spark.send("out", "key", "value")
        rows = intake.input_frame(read(), rules).withColumn("outcome", outcome)
        return batch.outcomes(rows, topic)

    def handed() -> object:
        return decided().mapInArrow(_drained, "rows bigint")

    name = "bench-frames-stages"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery="at-least-once", out=out))
    whole = _batch_seconds(world, target)
    took = {
        "Spark's Kafka source": _seconds(read),
        "intake, handler": _seconds(decided),
        "to Python": _seconds(handed),
        "checked, written": whole,
    }
    figures, before = [], 0.0
    for stage, seconds in took.items():
        added = max(0.0, seconds - before)
        figures.append(Figure(stage, f"{added:.2f} s, {added / whole:.0%}"))
        before = max(before, seconds)
    return figures


def _batch_seconds(world: World, target: str) -> float:
    handle = redrive.spark.start(
        world.spark, target, bootstrap=world.settings.servers(), until="once"
    )
    handle.await_termination(300)
    handle.stop()
    return sum(each.seconds for each in handle.figures.news)


def _seconds(frame: object) -> float:
    times = []
    for _ in range(2):
        began = monotonic()
        frame().write.format("noop").mode("overwrite").save()
        times.append(monotonic() - began)
    return min(times)


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(one.num_rows for one in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


def _memory() -> int:
    """What this process, Spark's and all workers hold."""
    here = psutil.Process()
    return sum(one.memory_info().rss for one in (here, *here.children(recursive=True)))
