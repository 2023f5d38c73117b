"""How fast records are copied: bare PySpark, then redrive at least once and with transactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import cloudpickle
from spark.backlog import RECORDS, Drained, best, drain
from spark.world import PARTITIONS, World, rate_figures, tell

import redrive.spark

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


def _tell(rates: dict[str, list[Drained]]) -> bool:
    print(f"copy of a backlog of {RECORDS:,} records of 200 bytes, {PARTITIONS} partitions, by a")
    print("pipeline that runs: from the backlog's commit to the last record's arrival;")
    print(f"best of {ROUNDS - 1} after a warm-up")
    rates_best = {name: best(found) for name, found in rates.items()}
    kept = tell(
        rate_figures({name: each.whole for name, each in rates_best.items()}, LIMITS, "bare")
    )
    print("within a batch, from the first record's arrival to the last one's")
    tell(rate_figures({name: each.within for name, each in rates_best.items()}, {}, "bare"))
    return kept


def _redrive(world: World, delivery: str) -> list[Drained]:
    name = f"bench-{delivery}"
    out = world.topic(f"{name}-out")
    target = world.app(name, APP.format(name=name, delivery=delivery, topic=TOPIC, out=out))
    handle = redrive.spark.start(
        world.spark,
        target,
        bootstrap=world.settings.servers(),
        start_from="latest",
        new_app=True,  # the one before reads the same topic
    )
    handle.wait_until(lambda: bool(handle.status("main").get("planned")), 60)
    found = drain(world, TOPIC, out, ROUNDS)
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


def _bare(world: World) -> list[Drained]:
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
    found = drain(world, TOPIC, out, ROUNDS)
    query.stop()
    return found
