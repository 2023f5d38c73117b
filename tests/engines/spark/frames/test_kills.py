"""The orders pipeline, killed again and again: every order once."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from driver import Driver

from redrive.envelope import parse
from redrive.record import Write

pytestmark = pytest.mark.chaos

ORDERS = """
    from pyspark.sql import functions as F
    from redrive.spark import bury, park, send

    app = App(NAME, delivery="transaction")

    @app.frame(topic("in"), retry=RetryPolicy("2s 30s 30s"))
    def enrich(frame):
        order = F.from_json(
            F.col("value").cast("string"),
            "id int, customer int, broken string",
            {"columnNameOfCorruptRecord": "broken"},
        )
        customers = frame.sparkSession.read.schema("customer int, name string").json(
            os.environ["CUSTOMERS"]
        )
        rows = (
            frame.withColumn("order", order)
            .withColumn("customer", F.col("order.customer"))
            .join(F.broadcast(customers), "customer", "left")
        )
        outcome = (
            F.when(F.col("order.broken").isNotNull(), bury("broken JSON"))
            .when(F.col("name").isNull(), park("not known yet"))
            .otherwise(send(topic("out"), "key", F.to_json(F.struct("order.id", "name"))))
        )
        return rows.withColumn("outcome", outcome)
"""
COUNT = 60_000


def test_every_order_is_sent_once_or_buried_whoever_is_killed(world, monkeypatch):
    customers = world.folder / "customers"
    customers.mkdir()
    monkeypatch.setitem(os.environ, "CUSTOMERS", str(customers))
    (customers / "1.json").write_text(
        "".join(json.dumps({"customer": n, "name": f"n{n}"}) + "\n" for n in range(9))
    )
    target = world.app(ORDERS, partitions=4)
    world.create(world.topic("out"), 4)
    orders = [b'{"id": %d, "customer": %d}' % (n, n % 10) for n in range(COUNT)]
    orders[77] = b'{"id": 7'
    world.publisher.publish([Write(world.topic("in"), b"%d" % n, o) for n, o in enumerate(orders)])

    def run() -> Driver:
        options = ("--until-empty", "--max-records-per-batch", "8000")
        return Driver(target, world.folder, world.bootstrap, *options)

    killed = run()
    try:
        world.wait(killed, "a fifth", lambda: world.lag("in") < COUNT * 4 // 5, timeout=180)
        killed.kill()
        killed = run()
        world.wait(killed, "a half", lambda: world.lag("in") < COUNT // 2, timeout=180)
        world.wait(killed, "a Python worker", killed.kill_worker)
        world.wait(killed, "all of it", lambda: world.lag("in") == 0, timeout=180)
        killed.kill()
        (customers / "2.json").write_text('{"customer": 9, "name": "n9"}\n')
        killed = run()
        assert killed.wait(240) == 0, killed.output()[-3000:]
    finally:
        killed.kill()
    sent = Counter(json.loads(value or b"")["id"] for value in world.values("out"))
    assert {number: times for number, times in sent.items() if times > 1} == {}
    assert set(range(COUNT)) - set(sent) == {77}
    assert [parse(letter.headers).error_message for letter in world.records("dead")] == [
        "broken JSON"
    ]
