"""Ranges whose writes are refused, on a Spark in memory: they wait, and call nobody meanwhile."""

from __future__ import annotations

import pytest
from memory_engine import MiniSpark, memory_runtime

from redrive import App, RetryPolicy
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.engines.spark.news import News
from redrive.engines.spark.refused_ranges import RefusedRanges
from redrive.engines.spark.task import Task
from redrive.errors import PublishError
from redrive.guarantees import GUARANTEES
from redrive.kafka.errors import BrokerError
from redrive.ports import Position
from redrive.record import TopicPartition, Write
from redrive.tuning import REFUSED_LONGEST, REFUSED_WAIT


def selling(calls: list[bytes], delivery: str = "at-least-once") -> App:
    app = App("app", retry=RetryPolicy(), delivery=delivery)

    @app.handler("in")
    def sell(record, ctx):
        calls.append(record.value)
        ctx.send("out", record.value)

    app.handler("other")(lambda record, ctx: calls.append(record.value))
    return app


@pytest.fixture
def calls() -> list[bytes]:
    return []


@pytest.fixture(params=["at-least-once", "transaction"])
def delivery(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def spark(calls: list[bytes], delivery: str) -> MiniSpark:
    return MiniSpark(selling(calls, delivery))


def test_a_range_is_not_planned_while_its_topic_is_missing_and_others_are(spark, calls):
    spark.send("in", b"1", b"2")
    planner = spark.planner()
    for number in range(50):
        spark.send("other", b"other %d" % number)
        spark.run_batch(planner.plan())
        spark.clock.advance(REFUSED_WAIT)
    assert calls.count(b"1") == calls.count(b"2") == 1
    assert len(calls) == 52
    planner.plan()
    assert (planner.status.refused, sum(planner.status.ahead.lag.values())) == (2, 2)
    assert "the topic does not exist" in planner.status.refusal


def test_it_is_planned_once_more_when_the_topic_takes_writes(spark, calls):
    spark.send("in", b"1", b"2")
    planner = spark.planner()
    spark.run_batch(planner.plan())
    assert planner.plan() == []
    spark.broker.create("out")
    spark.clock.advance(REFUSED_LONGEST)
    spark.run_batch(planner.plan())
    assert planner.plan() == []
    assert spark.values("out") == [b"1", b"2"]
    assert calls == [b"1", b"2"] * 2
    assert (planner.status.refused, planner.status.refusal) == (0, "")


@pytest.mark.parametrize("until", ["once", "empty"])
def test_a_run_that_is_to_end_has_done_all_but_what_is_refused(calls, delivery, until):
    spark = MiniSpark(selling(calls, delivery), until=until)
    spark.send("in", b"1")
    spark.send("other", b"2")
    planner = spark.planner()
    spark.run_batch(planner.plan())
    assert not planner.status.reached
    planner.plan()
    assert (planner.status.reached, planner.status.empty, planner.status.refused) == (True, True, 1)
    spark.send("other", b"3")
    planner.plan()
    assert planner.status.reached
    assert not planner.status.empty


def test_while_nobody_answers_it_waits(spark, calls):
    def nobody(topics):
        raise BrokerError("nobody answers")

    spark.send("in", b"1")
    planner = spark.planner(refusing=nobody)
    spark.run_batch(planner.plan())
    spark.broker.create("out")
    for _ in range(10):
        spark.clock.advance(REFUSED_LONGEST)
        assert planner.plan() == []
    assert calls == [b"1"]


def test_where_nobody_can_be_asked_it_is_tried_less_and_less_often(spark, calls, delivery):
    """A dead topic that is too small says so only when it is written to."""
    spark.app = App("app", retry=RetryPolicy(), delivery=delivery)

    @spark.app.handler("in")
    def fail(record, ctx):
        calls.append(record.value)
        raise ValueError("never")

    spark.broker.configure("app.dead", {"max.message.bytes": "100"})
    spark.send("in", b"x" * 100)
    planner = spark.planner()
    for _ in range(12 * 60):
        spark.run_batch(planner.plan())
        spark.clock.advance("5s")
    assert len(calls) < 25  # within an hour
    spark.broker.configure("app.dead", {"max.message.bytes": "10000"})
    spark.clock.advance("5m")
    spark.run_batch(planner.plan())
    assert len(spark.values("app.dead")) == 1


def test_a_message_that_is_never_taken_ends_its_record_within_the_task(spark, calls):
    spark.broker.create("out", config={"max.message.bytes": "200"})
    spark.send("in", b"1", b"x" * 500, b"2")
    planner = spark.planner()
    spark.run_batch(planner.plan())
    assert planner.plan() == []
    assert spark.values("out") == [b"1", b"2"]
    (letter,) = spark.broker.records("app.dead")
    assert letter.header("redrive-dead-reason") == b"refused-write"
    assert len(calls) == 3
    assert sum(report.counts.get("done", 0) for report in spark.reports) == 2


def test_a_task_ends_when_all_that_is_left_waits(calls, delivery):
    """And not at its deadline: others wait for it."""
    spark = MiniSpark(selling(calls, delivery), batch_deadline=3_600_000)
    spark.send("in", b"1")
    planner = spark.planner()
    spark.run_batch(planner.plan())
    (report,) = [each for each in spark.reports if each.topic == "in"]
    assert report.refused == 1
    ((topic, kind, why),) = report.refusals
    assert (topic, kind, PublishError(why).args) == ("out", "topic", (why,))


def test_a_transaction_goes_up_to_the_first_record_that_has_to_wait(calls):
    """Those before it are not handled again with it, and nothing is there twice."""
    app = selling(calls, "transaction")

    @app.handler("mixed")
    def mixed(record, ctx):
        calls.append(record.value)
        ctx.send("out" if record.value == b"3" else "fine", record.value)

    spark = MiniSpark(app)
    spark.broker.create("fine")
    spark.send("mixed", *(b"%d" % number for number in range(6)))
    planner = spark.planner()
    spark.run_batch(planner.plan())
    assert spark.values("fine") == [b"0", b"1", b"2"]
    assert spark.committed(TopicPartition("mixed", 0)) == Position(3)
    assert planner.plan() == []
    assert planner.status.refused == 1
    spark.broker.create("out")
    spark.clock.advance(REFUSED_LONGEST)
    spark.run_batch(planner.plan())
    assert spark.values("fine") == [b"0", b"1", b"2", b"4", b"5"]
    assert spark.values("out") == [b"3"]
    assert [calls.count(b"%d" % number) for number in range(6)] == [1, 1, 1, 2, 2, 2]
    assert sum(report.counts.get("done", 0) for report in spark.reports) == 6


@pytest.mark.parametrize("now_at", [6, 0])
def test_a_range_that_is_elsewhere_by_now_waits_no_longer(spark, now_at):
    """Its writes were taken; or its records are gone, and nobody will ever report on them."""
    place = TopicPartition("in", 0)
    refused = RefusedRanges(spark.broker.refusing, spark.clock)
    refused.note(News(ends={place: 5}, refused={place: (2, [("out", "topic", "it is missing")])}))
    refused.look({place: Position(5)})
    assert (refused.records, refused.reason) == (2, "it is missing")
    assert refused.now() == {place}
    refused.look({place: Position(now_at)})
    assert (refused.records, refused.reason, refused.now()) == (0, "", set())


def test_a_task_does_not_believe_what_its_process_has_seen_before(spark):
    """A process is kept from task to task: the topic may be there by now, as the planner found."""
    sent = [Write("out", None, b"1")]
    with memory_runtime(spark.app, spark.broker, spark.log, spark.clock) as runtime:
        tools = Tools(runtime.scope, GUARANTEES["idempotent"], spark.broker, spark.clock)
        runtime.units = Units(tools, None)  # type: ignore[arg-type]  # -- no unit of work runs here
        with pytest.raises(PublishError):
            tools.publish(sent)
        spark.broker.create("out")
        Task(spark.spec, runtime)
        tools.publish(sent)
    assert spark.values("out") == [b"1"]


def test_a_range_that_waits_for_something_without_a_name_is_not_planned_again_at_once(spark):
    place = TopicPartition("in", 0)
    refused = RefusedRanges(spark.broker.refusing, spark.clock)
    refused.note(News(ends={place: 0}, refused={place: (1, [("", "unknown", "not yet")])}))
    assert (refused.now(), refused.reason) == ({place}, "not yet")
    spark.clock.advance(REFUSED_WAIT)
    assert refused.now() == set()
