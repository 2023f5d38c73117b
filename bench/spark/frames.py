"""Frames against Spark's own copy from Kafka to Kafka, and what each stage of them takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import monotonic

import psutil
import pyarrow as pa
from pyspark import cloudpickle
from spark.backlog import RECORDS, Drained, appear, best, drain
from spark.world import PARTITIONS, Figure, World, rate_figures, tell

import redrive.spark
from redrive.engines.spark.frames import batch, intake, reading
from redrive.engines.spark.frames.intake import Rules
from redrive.engines.spark.ranges import Range

ROUNDS = 9
TOPIC = "bench-frames-in"
SPARK = "Spark's own"
LIMITS = {"at-least-once": 0.8, "transaction": 0.6}
MEMORY = 1.15
"""How much larger all processes may be at the end of the rounds than halfway."""

APP = """
from redrive import App
from redrive.spark import send

app = App({name!r}, delivery={delivery!r})


@app.frame({topic!r})
def copy(frame):
    return frame.withColumn("outcome", send({out!r}, "key", "value"))
"""


def run(world: World) -> bool:
    """Measure; gives whether the limits were kept."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    world.topic(TOPIC)
    rates: dict[str, list[Drained]] = {"bare": _bare(world)}
    sizes: list[tuple[int, int]] = []
    for delivery in LIMITS:
        rates[delivery] = _frames(world, delivery, sizes)
    return _tell(world, rates, sizes)


def _tell(world: World, rates: dict[str, list[Drained]], sizes: list[tuple[int, int]]) -> bool:
    print(f"copy of a backlog of {RECORDS:,} records of 200 bytes, {PARTITIONS} partitions, in")
    print("columns by a pipeline that runs: from the backlog's commit to the last one's arrival;")
    print(f"best of {ROUNDS - 1} after a warm-up")
    found = {name: best(each) for name, each in rates.items()}
    figures = rate_figures({name: each.whole for name, each in found.items()}, LIMITS, SPARK)
    for delivery, (middle, end) in zip(LIMITS, sizes, strict=True):
        told = f"{middle >> 20:,} to {end >> 20:,} MiB"
        limit = f"at most {MEMORY} times"
        figures.append(Figure(f"  {delivery}, memory", told, limit, end <= MEMORY * middle))
    kept = tell(figures)
    print("within a batch, from the first record's arrival to the last one's")
    tell(rate_figures({name: each.within for name, each in found.items()}, {}, SPARK))
    print("share of each stage of one batch, at least once, warm")
    return tell(_stages(world)) and kept


def _frames(world: World, delivery: str, sizes: list[tuple[int, int]]) -> list[Drained]:
    name = f"bench-frames-{delivery}"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery=delivery, topic=TOPIC, out=out))
    handle = redrive.spark.start(
        world.spark,
        target,
        bootstrap=world.settings.servers(),
        start_from="latest",
        new_app=True,
    )
    handle.wait_until(lambda: bool(handle.status("main").get("planned")), 60)
    found = drain(world, TOPIC, out, ROUNDS // 2)
    middle = _memory()
    found += drain(world, TOPIC, out, ROUNDS - ROUNDS // 2)
    sizes.append((middle, _memory()))
    handle.stop()
    return found


def _bare(world: World) -> list[Drained]:
    out = world.topic("bench-frames-bare-out")
    servers = world.settings.servers()
    rows = (
        world.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "latest")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", out)
        .option("checkpointLocation", str(world.folder / "frames-bare"))
        .start()
    )
    world.wait_for(lambda: query.lastProgress is not None, 60)
    found = drain(world, TOPIC, out, ROUNDS)
    query.stop()
    return found


def _stages(world: World) -> list[Figure]:
    """Each stage by what it adds to the ones before it."""
    topic = world.topic("bench-frames-stages-in")
    appear(world, topic)
    ends = {place: world.log.bounds(place) for place in world.places(topic)}
    ranges = [Range(*place, *bounds) for place, bounds in ends.items()]
    rules = Rules(app="bench", topic=topic, topic_id="id", now=world.now())

    def read() -> object:
        return reading.read(world.spark, world.settings, ranges, "bench")

    def decided() -> object:
        # With the handler's part: what it does not use, Spark does not compute.
        outcome = redrive.spark.send("out", "key", "value")
        rows = intake.input_frame(read(), rules).withColumn("outcome", outcome)
        return batch.outcomes(rows, topic)

    def handed() -> object:
        return decided().mapInArrow(_drained, "rows bigint")

    name = "bench-frames-stages"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery="at-least-once", topic=topic, out=out))
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
