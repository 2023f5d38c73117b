"""How fast records are copied: bare PySpark, then redrive at least once and with transactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import time

import pyarrow as pa
from confluent_kafka import Producer
from pyspark import cloudpickle
from spark.world import PARTITIONS, World, rate_figures, tell

import redrive.spark

RECORDS = 400_000
ROUNDS = 5
TOPIC = "bench-in"
LIMITS = {"at-least-once": 1.0, "transaction": 0.8}

APP = """
from redrive import App

app = App({name!r}, ordering="partition", delivery={delivery!r})


@app.handler({topic!r})
def copy(record, ctx):
    ctx.send({out!r}, record.value, key=record.key)
"""


def run(world: World) -> bool:
    """Measure; gives whether the limits were kept."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    world.topic(TOPIC)
    rates = {"bare": _bare(world)}
    for delivery in LIMITS:
        rates[delivery] = _redrive(world, delivery)
    return _tell(rates)


def _tell(rates: dict[str, list[float]]) -> bool:
    best = {name: max(found[1:]) for name, found in rates.items()}
    print(f"copy of a backlog of {RECORDS:,} records of 200 bytes, {PARTITIONS} partitions, by a")
    print("pipeline that runs: from the backlog's commit to the last record's arrival;")
    print(f"best of {ROUNDS - 1} after a warm-up")
    return tell(rate_figures(best, LIMITS, "bare"))


def _rates(world: World, out: str) -> list[float]:
    """Backlogs that become visible at once, each drained by the pipeline that runs."""
    found = []
    for number in range(ROUNDS):
        visible = _appear(world)
        wanted = (number + 1) * RECORDS
        world.wait_for(lambda: world.ends(out) >= wanted, 120)  # noqa: B023 -- called here and now
        found.append(RECORDS / (world.last_arrival(out) - visible) * 1000)
    return found


def _appear(world: World) -> float:
    """Write a backlog in one transaction; gives the time at which it is committed."""
    producer = Producer(
        {
            "bootstrap.servers": world.settings.servers(),
            "transactional.id": "bench-backlog",
            "queue.buffering.max.messages": RECORDS,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    value = b"x" * 200
    for number in range(RECORDS):
        producer.produce(TOPIC, value, b"%d" % number, number % PARTITIONS)
    producer.flush()
    visible = time() * 1000
    producer.commit_transaction()
    return visible


def _redrive(world: World, delivery: str) -> list[float]:
    name = f"bench-{delivery}"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery=delivery, topic=TOPIC, out=out))
    handle = redrive.spark.start(
        world.spark, target, bootstrap=world.settings.servers(), start_from="latest"
    )
    handle.wait_until(lambda: bool(handle.status("main").get("planned")), 60)
    found = _rates(world, out)
    handle.stop()
    return found


def handle(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """What a handler is without redrive: a function of a record."""
    return key, value


def per_record(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a user writes without redrive: a loop over the records of each batch."""
    for batch in batches:
        keys, values = [], []
        for key, value in zip(
            batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
        ):
            written = handle(key, value)
            keys.append(written[0])
            values.append(written[1])
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, names=["key", "value"])


def _bare(world: World) -> list[float]:
    out = world.topic("bench-bare-out")
    servers = world.settings.servers()
    rows = (
        world.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "latest")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("key", "value")
        .mapInArrow(per_record, "key binary, value binary")
    )
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", out)
        .option("checkpointLocation", str(world.folder / "bare"))
        .start()
    )
    world.wait_for(lambda: query.lastProgress is not None, 60)
    found = _rates(world, out)
    query.stop()
    return found
