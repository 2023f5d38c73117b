"""What tasks are given and give back, without Spark."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import letters
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.types import StructType

from redrive import App, RetryPolicy
from redrive.config import load_settings
from redrive.dead import DeadLetters, Filter
from redrive.dead.letters import exported
from redrive.dead.showing import Seen
from redrive.dead.states import Mark, Marks
from redrive.engines.spark.dead import counting, sight
from redrive.engines.spark.dead.counting import SCHEMAS, Counting, columns
from redrive.engines.spark.dead.parts import Part, cut
from redrive.engines.spark.dead.sight import Sight
from redrive.engines.spark.dead.source import source

SETTINGS = load_settings({"bootstrap": "127.0.0.1:9"}, environ={})


def work(what, wanted=None):
    return Counting(what, SETTINGS, "shop", "shop.dead", "auto", wanted or Filter())


def names(what):
    return [each.partition(" ")[0].strip("`") for each in _fields(SCHEMAS[what])]


def _fields(schema):
    """The fields of a schema in DDL, of which one has commas within."""
    return schema.replace("name string, value binary", "both").split(", ")


def test_parquet_has_the_fields_of_the_export():
    app = letters.shop()
    with letters.buried(app, "bad 1") as sim:
        [found] = DeadLetters(sim.broker, app=app).scan()
        assert names("parquet") == ["scan", *exported(found, Seen(found.letter))]
        assert len(columns(found)) == len(names("parquet")) - 1


@pytest.mark.parametrize("what", ["groups", "stats", "json", "parquet"])
def test_the_last_row_of_a_task_says_what_it_has_scanned(what, monkeypatch):
    app = letters.shop()
    with letters.buried(app, *(f"bad {n}" for n in range(5))) as sim:
        log = sim.broker
        monkeypatch.setattr(
            counting,
            "KafkaLog",
            lambda *_: SimpleNamespace(batches=log.batches, close=lambda: None),
        )
        rows = [*work(what, Filter(keys=("k0", "k2"))).rows(Part(3, 0, 1, 5, Marks()))]
    assert {len(row) for row in rows} == {len(names(what))}
    *found, (scan, *rest) = rows
    assert (len(found), set(rest)) == (1, {None})
    assert all(row[0] is None for row in found)
    assert json.loads(scan) == {
        "topic": "shop.dead", "scanned": 4, "matched": 1, "complete": True, "deleted": 0,
        "places": [],
    }  # fmt: skip


NAME = "alice-wonder"


@pytest.mark.parametrize("what", ["groups", "stats"])
@pytest.mark.parametrize("decode", [None, lambda value: {"name": value.decode()[::-1]}])
def test_tasks_count_what_may_be_seen_as_the_driver_does(what, decode, monkeypatch):
    app = App("shop", masked=["name"], retry=RetryPolicy("5s"))
    written = json.dumps({"name": NAME}) if decode is None else NAME[::-1]

    @app.handler("orders", decode=decode)
    def handle(record, ctx):
        raise type(f"No{NAME}", (Exception,), {})(f"no customer {NAME}")

    monkeypatch.setitem(sys.modules, "shop_of_tasks", SimpleNamespace(app=app))
    monkeypatch.setattr(sight, "target_of", lambda _: "shop_of_tasks:app")
    monkeypatch.setattr(sight, "load", lambda spec: sys.modules[spec.target.partition(":")[0]].app)
    with letters.buried(app, written) as sim:
        dead = DeadLetters(sim.broker, app=app)
        log = SimpleNamespace(batches=sim.broker.batches, close=lambda: None)
        monkeypatch.setattr(counting, "KafkaLog", lambda *_: log)
        given = replace(work(what), sight=Sight.of(dead))
        [row, _] = cloudpickle.loads(cloudpickle.dumps(given)).rows(Part(0, 0, 0, 1, Marks()))
        local = dead.stats()[0].as_data() if what == "stats" else [dead.groups()[0][0].as_data()]
    assert json.loads(row[2]) == json.loads(json.dumps(local))
    assert NAME not in row[2]
    assert "No***" in row[2]
    assert (given.sight.shipped is None) == (decode is None)


def test_tasks_are_given_nothing_of_the_parts_of_others():
    marks = Marks()
    for offset in range(1000):
        marks.add(0, offset, Mark("replayed", ("a",)))
    parts = cut("shop.dead", {0: (0, 1000)}, Filter(), marks, 100)
    # As Spark does it: the class travels to whoever plans, and what plans to the tasks.
    arrived = cloudpickle.loads(cloudpickle.dumps(source(work("groups"), parts)))
    made = arrived({})
    reader = made.reader(StructType())
    given = cloudpickle.dumps((made, reader))
    assert len(given) < 6000
    assert [each.value.number for each in reader.partitions()] == [*range(10)]
    assert cloudpickle.loads(given)[1].partitions() == []
