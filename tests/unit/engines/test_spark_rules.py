"""What operators say about parked records, on Spark: planned ranges are opened, tasks go by it."""

from __future__ import annotations

import pytest
from memory_engine import MiniSpark

from redrive import App, RetryPolicy
from redrive.dead import Match, Steering
from redrive.dead.parked import group_of
from redrive.envelope import parse
from redrive.record import TopicPartition

HOUR = 3_600_000
PLACE = TopicPartition("shop.retry.1h", 0)


def shop(delivery):
    app = App("shop", delivery=delivery, ordering="partition")

    @app.handler("in", retry=RetryPolicy("1h", extra_delays="1m"))
    def handle(record, ctx):
        if ctx.attempt == 1:
            raise KeyError if record.value.startswith(b"price") else OSError
        ctx.send("out", record.value)

    return app


@pytest.fixture(params=["at-least-once", "transaction"])
def spark(request):
    spark = MiniSpark(shop(request.param))
    spark.broker.create("out")
    spark.send("in", *(b"%s %d" % (cause, n) for n in range(5) for cause in (b"stock", b"price")))
    spark.run("main")
    return spark


def steering(spark):
    broker, clock = spark.broker, spark.clock
    progress = spark.progress
    return Steering(
        spark.app, log=broker, progress=progress, publisher=broker, clock=clock, by="me"
    )


def cause(spark, value):
    found = spark.broker.records("shop.retry.1h")
    (group,) = {group_of(each) for each in found if each.value.startswith(value)}
    return Match(groups=(group,))


def test_what_is_not_due_is_planned_as_far_as_a_run_now_goes(spark):
    assert spark.planner("retry").plan() == []
    rule = steering(spark).run_now(Match(topics=(PLACE.topic,)))
    [[planned]] = spark.planner("retry").plan()
    assert (planned.place, planned.start) == (PLACE, 0)
    assert planned.end == rule.ends[PLACE.topic]["0"]
    assert planned.rules == (rule,)


def test_a_run_now_of_a_cause_runs_its_records_once_and_the_others_when_they_are_due(spark):
    began = spark.clock.now()
    spark.clock.advance(10 * 60_000)
    operator = steering(spark)
    rule = operator.run_now(cause(spark, b"price"))
    spark.run("retry")
    assert sorted(spark.values("out")) == [b"price %d" % n for n in range(5)]
    assert not operator.under_way(rule)
    while spark.clock.now() < began + HOUR:
        assert len(spark.values("out")) == 5
        spark.clock.advance(60_000)
        spark.run("retry")
    assert sorted(spark.values("out")[5:]) == [b"stock %d" % n for n in range(5)]


def test_what_is_held_does_not_run_and_no_attempt_is_counted(spark):
    operator = steering(spark)
    rule = operator.hold(cause(spark, b"stock"))
    for _ in range(3):
        spark.clock.advance(HOUR + 1)
        spark.run("retry")
    assert sorted(spark.values("out")) == [b"price %d" % n for n in range(5)]
    operator.release([rule], run_now=True)
    spark.run("retry")
    assert sorted(spark.values("out")[5:]) == [b"stock %d" % n for n in range(5)]
    assert {parse(each.headers).attempt for each in spark.broker.records(PLACE.topic)} == {2}
