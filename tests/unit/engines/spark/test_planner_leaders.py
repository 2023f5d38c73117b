"""Partitions that no broker leads wait by themselves: the others of their lane go on."""

from __future__ import annotations

import pytest
from memory_engine import MiniSpark
from planner_worlds import planned

from redrive import App, RetryPolicy
from redrive.kafka.errors import NoLeaderError
from redrive.record import TopicPartition
from redrive.tuning import TOPICS_EVERY

SICK = TopicPartition("in", 1)


@pytest.fixture
def spark() -> MiniSpark:
    app = App("app", retry=RetryPolicy("1s"))
    app.handler("in")(lambda record, ctx: None)
    made = MiniSpark(app, partitions=3)
    for number in range(3):
        made.send("in", b"x", b"y", partition=number)
    return made


def test_the_others_are_planned_and_it_is_said_which_one_waits(spark):
    planner = spark.planner()
    spark.log.without_leader = {SICK}
    for _ in range(2):
        assert planned(planner) == [(0, 0, 2), (2, 0, 2)]
        assert planner.waits_for == ("for a leader of in[1]: check the brokers; the others go on")
    assert not planner.status.empty
    spark.log.without_leader = set()
    spark.clock.advance(TOPICS_EVERY)
    assert planned(planner) == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]
    assert planner.waits_for == ""


def test_one_that_loses_its_leader_later_waits_where_it_was(spark):
    planner = spark.planner()
    assert planned(planner) == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]
    spark.log.without_leader = {SICK}
    assert planned(planner) == [(0, 0, 2), (2, 0, 2)]
    spark.clock.advance(TOPICS_EVERY)
    assert planned(planner) == [(0, 0, 2), (2, 0, 2)]
    spark.log.without_leader = set()
    spark.clock.advance(TOPICS_EVERY)
    assert planned(planner) == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]
    assert planner.status.put_back == []


def test_a_run_to_the_end_of_what_is_there_waits_for_it(spark):
    spark.spec = spark.spec.__class__(**{**vars(spark.spec), "until": "once"})
    planner = spark.planner()
    spark.log.without_leader = {SICK}
    spark.run_batch(planner.plan())
    assert planner.plan() == []
    assert not planner.status.reached
    spark.log.without_leader = set()
    spark.clock.advance(TOPICS_EVERY)
    spark.run_batch(planner.plan())
    assert planner.plan() == []
    assert planner.status.reached


def test_in_the_retry_lane_too(spark):
    spark.log.without_leader = {TopicPartition("app.retry.1s", 0)}
    planner = spark.planner("retry")
    assert planner.plan() == []
    assert "app.retry.1s[0]" in planner.waits_for
    spark.send("app.retry.1s", b"x", partition=2)
    spark.clock.advance(1000)
    assert planned(planner) == [(2, 0, 1)]


def test_without_a_word_on_who_has_none_it_is_an_outage(spark, monkeypatch):
    spark.log.without_leader = {SICK}
    monkeypatch.setattr(spark.log, "leaderless", lambda _: set())
    with pytest.raises(NoLeaderError):
        spark.planner().plan()
