"""How fast records are copied: bare PySpark, then redrive at least once and with transactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import cloudpickle
from spark.world import PARTITIONS, Figure, World, tell

import redrive.spark
from redrive.record import Write

RECORDS = 400_000
ROUNDS = 5
LIMITS = {"at-least-once": 1.0, "transaction": 0.8}

APP = """
from redrive import App

app = App({name!r}, ordering="partition", delivery={delivery!r})


@app.handler("bench-in")
def copy(record, ctx):
    ctx.send({out!r}, record.value, key=record.key)
"""


def run(world: World) -> bool:
    """Measure; gives whether the limits were kept."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    world.topic("bench-in")
    value = b"x" * 200
    for start in range(0, RECORDS, 50_000):
        numbers = range(start, start + 50_000)
        world.publisher.publish(
            [Write("bench-in", b"%d" % n, value, (), n % PARTITIONS) for n in numbers]
        )
    rates: dict[str, list[float]] = {"bare": [], "at-least-once": [], "transaction": []}
    for number in range(ROUNDS):  # the first round warms everybody up
        rates["bare"].append(_bare(world, number))
        for delivery in LIMITS:
            rates[delivery].append(_redrive(world, number, delivery))
    return _tell(rates)


def _tell(rates: dict[str, list[float]]) -> bool:
    best = {name: max(found[1:]) for name, found in rates.items()}
    print(f"copy of {RECORDS:,} records of 200 bytes, {PARTITIONS} partitions,")
    print(f"between the first and the last record's arrival; best of {ROUNDS - 1} after a warm-up")
    figures: list[Figure] = []
    for name, rate in best.items():
        ratio, limit = rate / best["bare"], LIMITS.get(name)
        value = f"{rate:,.0f} records/s, {ratio:.2f} of bare"
        if limit is None:
            figures.append(Figure(name, value))
        else:
            figures.append(Figure(name, value, f"at least {limit}", ratio >= limit))
    return tell(figures)


def _rate(world: World, topic: str) -> float:
    times = [record.timestamp or 0 for record in world.read(topic)]
    assert len(times) == RECORDS, (topic, len(times))
    return RECORDS / (max(times) - min(times)) * 1000


def _redrive(world: World, number: int, delivery: str) -> float:
    name = f"bench-{delivery}-{number}"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery=delivery, out=out))
    handle = redrive.spark.start(
        world.spark, target, bootstrap=world.settings.servers(), until="once"
    )
    handle.await_termination(300)
    handle.stop()
    return _rate(world, out)


def per_record(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a user writes without redrive: a loop over the records of each batch."""
    for batch in batches:
        keys, values = [], []
        for key, value in zip(
            batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
        ):
            keys.append(key)
            values.append(value)
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, names=["key", "value"])


def _bare(world: World, number: int) -> float:
    out = world.topic(f"bench-bare-{number}-out")
    servers = world.settings.servers()
    rows = (
        world.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "bench-in")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .mapInArrow(per_record, "key binary, value binary")
    )
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", out)
        .option("checkpointLocation", str(world.folder / f"bare-{number}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    return _rate(world, out)
