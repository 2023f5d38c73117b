"""Outages on Spark, in memory: what is planned, what tasks do with it, and what they tell."""

from __future__ import annotations

import pytest
from memory_engine import MiniSpark, PassingClock

from redrive import App, Guard, Outage, Retry, RetryPolicy
from redrive.breaker import Why
from redrive.engines.spark.outages.told import Told
from redrive.engines.spark.ranges import Range
from redrive.record import Write

KEYS = 40
MANY = 5000
"""More than a task has in flight."""
SEEN = Why("1f00", 20, 20, 0, 300)


class Shop:
    """An app whose handlers call what may be away."""

    def __init__(self, topics=("in",), **options):
        self.away = set()
        self.poison = set()
        self.calls = []
        self.attempts = set()
        self.takes = lambda: None
        given = {"concurrency": 1, "retry": RetryPolicy("5m"), "guard": Guard(), **options}
        self.app = App("shop", **given)
        for topic in topics:
            self.app.handler(topic)(self.handle)

    def handle(self, record, ctx):
        self.calls.append(record.value)
        self.takes()
        self.attempts.add(ctx.attempt)
        if record.topic in self.away or record.value in self.poison:
            raise ConnectionError("nobody answers")
        if record.value.endswith(b"!") and ctx.attempt == 1:
            raise Retry("later")


def values(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


def breaker(spark, topic="in"):
    return spark.book.seen().pages[topic].breaker


def open_guard(spark, topic="in"):
    """As if a task had seen an outage; the first probe is due."""
    with spark.book.opened() as book:
        book.note("main", [Told(topic, why=SEEN)], spark.book.steady())
    spark.clock.advance("1s")


def turn(spark, planner):
    """Plan once, and run it."""
    plan = planner.plan()
    if plan:
        spark.run_batch(plan)
    return plan


def rest(spark, planners, seconds=120):
    for _ in range(seconds):
        spark.clock.advance("1s")
        for planner in planners:
            turn(spark, planner)


def rations(plan):
    return [
        (each.topic, guarded.ration)
        for ranges in plan
        for each in ranges
        for guarded in each.guarded
        if guarded.is_shut
    ]


# In a task


def test_tasks_that_see_an_outage_end_early_and_no_attempt_is_counted():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=2, batch_deadline=60_000)
    shop.takes = lambda: spark.clock.advance(20)
    shop.away = {"in"}
    spark.send("in", *values(10 * KEYS))
    turn(spark, spark.planner())
    assert breaker(spark).state == "open"
    assert len(shop.calls) < 3 * KEYS
    assert not spark.values("shop.retry.5m")


def test_a_task_that_sees_an_outage_ends_all_tasks_of_both_lanes():
    shop = Shop(topics=("in", "other"))
    spark = MiniSpark(shop.app)
    shop.takes = lambda: spark.clock.advance(20)
    shop.away = {"in"}
    spark.send("in", *values(KEYS))
    spark.run_task([Range("in", 0, 0, KEYS)])
    assert all(spark.spec.outage_file(lane).exists() for lane in ("main", "retry"))
    spark.send("other", *values(KEYS))
    (report,) = spark.run_task([Range("other", 0, 0, KEYS)])
    assert report.end == 0
    spark.planner().plan()
    (report,) = spark.run_task([Range("other", 0, 0, KEYS)])
    assert report.end == KEYS


def test_a_few_records_of_each_task_show_an_outage_together():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=4, clock=PassingClock())
    shop.away = {"in"}
    spark.send("in", *values(16))
    planner = spark.planner()
    for _ in range(2):
        turn(spark, planner)
    assert breaker(spark).state == "open"
    assert len(shop.calls) == 32
    assert not spark.values("shop.retry.5m")


def test_a_record_that_fails_alone_is_its_policys():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=2, clock=PassingClock())
    shop.poison = {b"7"}
    spark.send("in", *values(KEYS))
    spark.run()
    assert spark.values("shop.retry.5m") == [b"7"]
    assert spark.values("shop.dead") == []
    assert {*shop.calls} == {*values(KEYS)}


def test_a_task_that_fails_while_others_pass_sees_no_outage():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=2)
    poisoned = [b"poison %d" % number for number in range(KEYS)]
    shop.poison = {*poisoned}
    spark.send("in", *values(MANY), partition=1)
    spark.send("in", *poisoned, partition=0)

    def beside():
        """Time passes; a task on the same machine has seen an outage by now."""
        spark.clock.advance(20)
        spark.spec.outage_file("main").touch()

    shop.takes = beside
    spark.run_task([Range("in", 1, 0, MANY)])
    shop.takes = lambda: spark.clock.advance(20)
    spark.spec.outage_file("main").unlink()
    spark.run_task([Range("in", 0, 0, KEYS)])
    with spark.book.opened() as book:
        book.note("main", spark.told, spark.book.steady())
        assert book.pages["in"].breaker.state == "closed"
    spark.spec.outage_file("main").unlink()
    failed = {*shop.calls} & shop.poison
    (own,) = spark.book.seen().pages["in"].own.values()
    assert len(own) == len(failed) >= 20


def test_a_handler_that_says_so_opens_it_and_says_when_it_is_called_next():
    app = App("shop", guard=Guard(), concurrency=1)

    @app.handler("in")
    def handle(record, ctx):
        raise Outage("down for maintenance", retry_after="5m")

    spark = MiniSpark(app)
    spark.send("in", *values(KEYS))
    planner = spark.planner()
    turn(spark, planner)
    assert breaker(spark).state == "open"
    spark.clock.advance("4m")
    assert planner.plan() == []
    spark.clock.advance("2m")
    assert rations(planner.plan()) == [("in", 1)]


# What is planned


def test_while_it_is_open_one_lane_plans_one_record():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=4)
    spark.send("in", *values(10 * KEYS))
    open_guard(spark)
    planner = spark.planner()
    plan = planner.plan()
    assert rations(plan) == [("in", 1)]
    spark.run_batch(plan)
    assert len(shop.calls) == 1


def test_between_probes_nothing_is_planned():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=4)
    shop.away = {"in"}
    spark.send("in", *values(KEYS))
    open_guard(spark)
    planner = spark.planner()
    turn(spark, planner)
    assert planner.plan() == []
    spark.clock.advance("2s")
    assert rations(planner.plan()) == [("in", 1)]


def test_probes_are_other_records_each_time_and_cost_nothing():
    shop = Shop()
    spark = MiniSpark(shop.app)
    shop.away = {"in"}
    spark.send("in", *values(KEYS))
    open_guard(spark)
    planner = spark.planner()
    for _ in range(10):
        turn(spark, planner)
        spark.clock.advance("30s")
    assert shop.calls == values(10)
    assert spark.committed(("in", 0)) is None or spark.committed(("in", 0)).offset == 0
    assert not spark.values("shop.retry.5m")


def test_other_handlers_go_on():
    shop = Shop(topics=("in", "other"))
    spark = MiniSpark(shop.app)
    spark.send("in", *values(KEYS))
    spark.send("other", *values(KEYS, start=KEYS))
    open_guard(spark)
    shop.away = {"in"}
    spark.run()
    assert {*values(KEYS, start=KEYS)} < {*shop.calls}
    assert len(shop.calls) == KEYS + 1


def test_in_a_delay_topic_those_of_others_go_on_and_it_is_not_read_again_and_again():
    shop = Shop(topics=("in", "other"))
    spark = MiniSpark(shop.app)
    spark.send("in", b"1!", b"2!")
    spark.send("other", b"3!", b"4!")
    spark.run()
    spark.clock.advance("6m")
    shop.calls.clear()
    open_guard(spark)
    shop.away = {"in"}
    retries = spark.planner("retry")
    turn(spark, retries)
    assert {*shop.calls} >= {b"3!", b"4!"}
    assert len(shop.calls) == 3
    assert retries.plan() == []
    shop.away = set()
    rest(spark, [spark.planner(), retries], 20)
    assert {*shop.calls} == {b"1!", b"2!", b"3!", b"4!"}
    assert shop.attempts == {1, 2}
    assert spark.dead == []


def test_parked_records_that_come_due_wait_and_go_by_the_same_ramp():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=2)
    parked = [b"%d!" % number for number in range(KEYS)]
    spark.send("in", *parked)
    spark.run()
    spark.clock.advance("6m")
    shop.calls.clear()
    spark.send("in", *values(KEYS))
    open_guard(spark)
    planners = spark.planner(), spark.planner("retry")
    calls = []
    for _ in range(8):
        plans = [planner.plan() for planner in planners]
        calls.append(sum(ration for plan in plans for _, ration in rations(plan)))
        for plan in filter(None, plans):
            spark.run_batch(plan)
        spark.clock.advance("1s")
    assert calls == [1, 1, 1, 1, 2, 4, 8, 0]
    rest(spark, planners, 20)
    assert {*shop.calls} == {*values(KEYS), *parked}
    assert len(spark.values("shop.retry.5m")) == KEYS


def test_what_goes_to_its_origin_stays_where_it_is_but_for_one_at_a_time():
    shop = Shop(retry=RetryPolicy("5m", redeliver="origin"))
    spark = MiniSpark(shop.app)
    spark.send("in", *(b"%d!" % number for number in range(KEYS)))
    spark.run()
    spark.clock.advance("6m")
    open_guard(spark)
    shop.away = {"in"}
    main, retries = spark.planner(), spark.planner("retry")
    turn(spark, retries)
    assert len(spark.values("in")) == KEYS + 1
    shop.away = set()
    rest(spark, [main, retries], 60)
    assert len(spark.values("in")) == 2 * KEYS
    assert breaker(spark).state == "closed"


def test_a_record_of_an_outage_that_was_planned_for_nobody_is_not_called():
    shop = Shop(topics=("in", "other"))
    spark = MiniSpark(shop.app)
    spark.send("in", *values(KEYS))
    open_guard(spark)
    plan = spark.planner().plan()
    with spark.book.opened() as book:
        book.begin("main", spark.book.steady())
    assert rations(plan) == [("in", 1)]
    assert rations(spark.planner("retry").plan()) == []


# The end


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_an_outage_costs_no_attempt_and_ends(delivery):
    shop = Shop(delivery=delivery)
    spark = MiniSpark(shop.app, partitions=2, clock=PassingClock())
    planner = spark.planner()
    shop.away = {"in"}
    spark.send("in", *values(KEYS))
    turn(spark, planner)
    assert breaker(spark).state == "open"
    shop.away = set()
    rest(spark, [planner], 30)
    assert breaker(spark).state == "closed"
    assert {*shop.calls} == {*values(KEYS)}
    assert shop.attempts == {1}
    assert not spark.values("shop.retry.5m")


@pytest.mark.parametrize("slots", [2, 8])
def test_a_poisoned_key_ends_as_usual(slots):
    shop = Shop(retry=RetryPolicy("1s 1s"))
    spark = MiniSpark(shop.app, partitions=2, slots=slots, clock=PassingClock())
    planners = spark.planner(), spark.planner("retry")
    shop.poison = {b"poison 1", b"poison 2", b"poison 3"}
    shop.away = {"in"}
    spark.send("in", *values(KEYS))
    spark.broker.publish([Write("in", b"poison", each) for each in sorted(shop.poison)])
    spark.send("in", *values(KEYS, start=KEYS))
    rest(spark, planners, 5)
    assert breaker(spark).state == "open"
    shop.away = set()
    rest(spark, planners, 60)
    assert breaker(spark).state == "closed"
    assert {*spark.dead} == shop.poison
    assert {*shop.calls} == {*values(2 * KEYS), *shop.poison}
    assert {*spark.values("shop.retry.1s")} == shop.poison


def test_a_poisoned_key_that_is_all_that_is_left_ends_as_usual():
    shop = Shop(retry=RetryPolicy("1s 1s"))
    spark = MiniSpark(shop.app, slots=80, clock=PassingClock())
    planners = spark.planner(), spark.planner("retry")
    shop.poison = {b"poison 1", b"poison 2"}
    spark.send("in", *values(KEYS))
    spark.broker.publish([Write("in", b"poison", each) for each in sorted(shop.poison)])
    open_guard(spark)
    rest(spark, planners, 60)
    assert breaker(spark).state == "closed"
    assert {*spark.dead} == shop.poison


def test_a_run_that_begins_during_an_outage_counts_no_attempt_either():
    shop = Shop()
    spark = MiniSpark(shop.app, partitions=2, clock=PassingClock())
    shop.away = {"in"}
    spark.send("in", *values(KEYS))
    turn(spark, spark.planner())
    spark.spec.book_file.unlink()
    turn(spark, spark.planner())
    assert breaker(spark).state == "open"
    assert shop.attempts == {1}
    assert not spark.values("shop.retry.5m")


def test_a_time_spent_waiting_for_the_end_is_not_counted_by_max_duration():
    shop = Shop(retry=RetryPolicy("5m", max_duration="20m"))
    spark = MiniSpark(shop.app)
    spark.send("in", b"1!")
    spark.run()
    spark.clock.advance("4m")
    open_guard(spark)
    spark.clock.advance("1h")
    rest(spark, [spark.planner(), spark.planner("retry")], 10)
    assert shop.calls == [b"1!", b"1!"]
    assert spark.dead == []
