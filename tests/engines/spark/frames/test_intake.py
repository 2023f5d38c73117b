"""The expressions that choose a handler's rows say what the processor says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import privates
import pytest

from redrive import App, RetryPolicy
from redrive.engines.spark.frames.intake import Rules, input_frame
from redrive.engines.spark.frames.judging import ForHandler, Judge
from redrive.envelope import HEADERS, Envelope, at_origin, parse
from redrive.parked_rules import Match, ParkedRule
from redrive.record import Headers, Record, TopicPartition
from redrive.testing.frames import kafka_frame

NOW = 1_000_000_000
DELAY = 1000
LATEST = 253_402_300_799_999
USER = (("user", b"kept"), ("user", None))
WHOLE = Envelope(
    app="shop",
    id="an id",
    origin_topic="orders",
    origin_partition=3,
    origin_offset=70,
    origin_timestamp=5,
    first_received=NOW - 5000,
    attempt=2,
    due=NOW,
    not_before=NOW,
    error_type="ValueError",
    error_message="no \u00e9",
)


def headers() -> Iterator[Headers]:
    """Headers as redrive writes them, and as nobody should."""
    yield ()
    yield USER
    yield WHOLE.headers(USER)
    for changes in (
        {"app": "other"},
        {"origin_topic": "payments"},
        {"due": NOW + 1},
        {"due": None, "not_before": None, "origin_timestamp": None},
        {"not_before": NOW + 1},
        {"dead_reason": "exhausted"},
        {"error_type": None, "error_message": None},
    ):
        yield replace(WHOLE, **changes).headers(USER)
    plain = WHOLE.headers(())
    for name in HEADERS:
        yield tuple(one for one in plain if one[0] != name)
        for value in (
            None,
            b"",
            b"-1",
            b"0",
            b" 7",
            b"1_000",
            b"7\n",
            b"\xff",
            b"seven",
            b"2147483647",
            b"2147483648",
            b"9223372036854775",
            b"9223372036854776",
            b"9223372036854775807",
            b"9223372036854775808",
            b"9" * 20,
            b"-9223372036854775808",
            b"-9223372036854775809",
            b"--1",
            b"-",
        ):
            yield (*plain, (name, value))


def _time(milliseconds: int) -> datetime:
    """As Spark gives it: without a zone, in that of the machine."""
    return datetime.fromtimestamp(milliseconds / 1000)  # noqa: DTZ006 -- as Spark


def records(topic: str) -> list[Record]:
    made = [
        Record(topic, 0, number, b"k", b"v", each, NOW - DELAY)
        for number, each in enumerate(headers())
    ]
    return [*made, Record(topic, 0, len(made), b"k", b"v", WHOLE.headers(()), NOW - DELAY + 1)]


@pytest.mark.parametrize("lane", ["main", "retry"])
@pytest.mark.parametrize("redeliver", ["handler", "origin", "no delays any more"])
@pytest.mark.parametrize("was", [None, "other"])
def test_the_handler_sees_what_the_processor_would_have_it_handle(
    spark_session, lane, redeliver, was
):
    app = App("shop", was=was)
    policy = (
        RetryPolicy() if redeliver.startswith("no") else RetryPolicy("1s 2s", redeliver=redeliver)
    )
    app.frame("orders", retry=policy)(lambda frame: frame)
    topic = "orders" if lane == "main" else "shop.retry.1s"
    delay = None if lane == "main" else DELAY
    given = records(topic)
    rules = Rules(
        app="shop",
        was=was,
        topic="orders",
        topic_id="ID",
        now=NOW,
        delays=None if delay is None else {topic: delay},
        to_origin=redeliver == "origin",
    )
    rows = input_frame(kafka_frame(spark_session, given), rules).collect()

    wanted = set()
    for record in given:
        place = TopicPartition(topic, 0)
        judge = Judge(app, place, start=0, topic_id="ID", delay=delay, now=NOW)
        if isinstance(judge.unseen(record), ForHandler):
            wanted.add(record.offset)
    assert {row.redrive.read.offset for row in rows} == wanted
    assert [row.redrive.read.number for row in rows] == [row.redrive.read.offset for row in rows]
    assert bool(wanted) == (lane == "main" or redeliver != "origin")

    for row in rows:
        record = given[row.redrive.read.offset]
        whole = row.redrive.attempt > 1
        seen = at_origin(record, parse(record.headers)) if whole else record
        assert (row.topic, row.partition, row.offset) == (seen.topic, seen.partition, seen.offset)
        found = tuple(
            (name, None if value is None else bytes(value)) for name, value in row.headers or ()
        )
        assert found == seen.headers
        first = parse(record.headers).first_received if whole else NOW
        assert row.redrive.first_received == (_time(first) if first <= LATEST else None)
        if whole:
            assert row.redrive.id == parse(record.headers).id
        else:
            assert row.redrive.id == f"ID/0/{record.offset}"
            assert row.redrive.error is None


def rule(kind: str, ends: dict[str, int], **match: tuple[str, ...]) -> ParkedRule:
    return ParkedRule(
        id="r", kind=kind, match=Match(**match), by="me", at=0,  # type: ignore[arg-type]  # -- a word of it
        ends={"shop.retry.1s": ends}, topic_ids={"shop.retry.1s": "D"},
    )  # fmt: skip


RULES = [
    (rule("hold", {}, groups=("g1",)),),
    (rule("hold", {}, topics=("shop.retry.1s",)),),
    (rule("run-now", {"0": 6}, groups=("g",)),),
    (rule("run-now", {"0": 6}, topics=("shop.retry.1s",)), rule("hold", {}, ids=("it's",))),
    (rule("hold", {}, groups=("g1",)), rule("run-now", {"0": 8}, ids=("it's", "b"))),
    (rule("run-now", {"1": 6}, groups=("g",)),),
]


@pytest.mark.parametrize("rules", RULES)
def test_operators_hold_rows_and_let_them_go_as_the_processor_would(spark_session, rules):
    app = App("shop")
    app.frame("orders", retry=RetryPolicy("1s 2s"))(lambda frame: frame)
    place = TopicPartition("shop.retry.1s", 0)
    made = [
        replace(WHOLE, id=name, error_group=group, due=due, not_before=None)
        for name in ("it's", "b")
        for group in ("g1", "h", None)
        for due in (NOW, NOW + 5000)
    ]
    given = [
        Record(*place, number, b"k", b"v", each.headers(()), NOW - DELAY)
        for number, each in enumerate(made)
    ]
    columns = Rules(
        app="shop", topic="orders", topic_id="ID", now=NOW, delays={place.topic: DELAY},
        parked=rules, topic_ids={place: "D"},
    )  # fmt: skip
    rows = input_frame(kafka_frame(spark_session, given), columns).collect()
    wanted = set()
    for record in given:
        judge = Judge(
            app, place, start=0, topic_id="ID", delay=DELAY, now=NOW, rules=rules,
            delay_topic_id="D",
        )  # fmt: skip
        if isinstance(judge.unseen(record), ForHandler):
            wanted.add(record.offset)
    assert {row.redrive.read.offset for row in rows} == wanted
    assert all(row.redrive.read.due <= NOW for row in rows)


@pytest.mark.parametrize("lane", ["main", "retry"])
def test_the_next_batch_needs_no_new_code(spark_session, lane):
    """Code that is made anew for every batch is compiled, and slow at first, in every batch."""
    topic = "orders" if lane == "main" else "shop.retry.1s"
    delays = None if lane == "main" else {topic: DELAY}
    kafka = kafka_frame(spark_session, records(topic))
    metrics = privates.jvm(spark_session).org.apache.spark.metrics.source.CodegenMetrics

    def compiled(now: int) -> int:
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        rules = Rules(app="shop", topic="orders", topic_id="ID", now=now, delays=delays)
        assert input_frame(kafka, rules).where("redrive.first_received IS NOT NULL").collect()
        return metrics.METRIC_COMPILATION_TIME().getCount() - before

    assert compiled(NOW)
    assert compiled(NOW + 1) == 0


def test_rows_that_were_done_before_are_not_shown(spark_session):
    places = TopicPartition("orders", 0), TopicPartition("orders", 1)
    records = [Record(*place, offset, None, b"v") for place in places for offset in range(6)]
    done = {places[0]: [(1, 2), (3, 5)]}
    rules = Rules(app="shop", topic="orders", topic_id="ID", now=NOW, done=done)
    shown = input_frame(kafka_frame(spark_session, records), rules)
    found = sorted((row.partition, row.offset) for row in shown.collect())
    assert found == [(0, 0), (0, 2), (0, 5), *((1, offset) for offset in range(6))]
