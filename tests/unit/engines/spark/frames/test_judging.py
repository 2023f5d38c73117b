"""Records of frames are judged by the processor that judges those of handlers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive import App, Bury, Retry, RetryPolicy
from redrive.engines.spark.frames.judging import ForHandler, Judge, NotDue
from redrive.envelope import Envelope, parse
from redrive.parked_rules import Match, ParkedRule
from redrive.processing.outcomes.report import Outcome
from redrive.record import Record, TopicPartition

NOW = 1_000_000
USER = ("user", b"kept")


def app(retry: RetryPolicy) -> App:
    made = App("shop")
    made.frame("orders", retry=retry)(lambda frame: frame)
    return made


def judge(*, retry: str = "1s 2s", delay: int | None = None, **options: object) -> Judge:
    topic = "orders" if delay is None else "shop.retry.1s"
    made = app(RetryPolicy(retry, **options))  # type: ignore[arg-type]  # -- it says what they are
    return Judge(made, TopicPartition(topic, 0), start=0, topic_id="ID", delay=delay, now=NOW)


def test_rows_are_held_let_go_and_make_way_as_operators_say():
    def ruled(kind: str, end: int = 0, **match: tuple[str, ...]) -> ParkedRule:
        ends = {"shop.retry.1s": {"0": end}} if end else {}
        return ParkedRule(
            id="r", kind=kind, match=Match(**match), by="me", at=0,  # type: ignore[arg-type]  # -- a word of it
            ends=ends, topic_ids={"shop.retry.1s": "D"},
        )  # fmt: skip

    def judged(rule: ParkedRule, record: Record) -> object:
        place, made = TopicPartition("shop.retry.1s", 0), app(RetryPolicy("1s 2s"))
        return Judge(
            made, place, start=0, topic_id="ID", delay=1000, now=NOW,
            rules=(rule,), delay_topic_id="D",
        ).unseen(record)  # fmt: skip

    due, later = parked(error_group="g1"), parked(due=NOW + 5000, error_group="g1")
    assert judged(ruled("hold", groups=("g2",)), due) == ForHandler()
    held = judged(ruled("hold", groups=("g1",)), due)
    assert isinstance(held, Outcome)
    assert (held.kind, held.reason, held.envelope.attempt) == ("hop", "held", 2)  # type: ignore[union-attr]  # -- it has one
    assert judged(ruled("run-now", end=1, groups=("g1",)), later) == ForHandler()
    away = judged(ruled("run-now", end=1, groups=("g2",)), later)
    assert isinstance(away, Outcome)
    assert (away.kind, away.reason, away.envelope.not_before) == ("hop", "makes way", NOW + 5000)  # type: ignore[union-attr]  # -- it has one


def parked(offset: int = 0, **changes: object) -> Record:
    envelope = Envelope(
        app="shop",
        id="ID/3/7",
        origin_topic="orders",
        origin_partition=3,
        origin_offset=7,
        first_received=NOW - 5000,
        attempt=2,
        due=NOW,
    )
    headers = replace(envelope, **changes).headers((USER,))  # type: ignore[arg-type]  # -- its fields
    return Record("shop.retry.1s", 0, offset, b"k", b"v", headers, NOW - 1000)


def test_a_parked_row_goes_to_the_delay_topic_of_its_attempt_with_its_bytes():
    record = Record("orders", 0, 5, b"k", b"v", (USER,), 17)
    outcome = judge().failed(record, Retry("not yet"))
    (write,) = outcome.writes
    envelope = parse(write.headers)
    assert (outcome.kind, write.topic, write.key, write.value) == (
        "park",
        "shop.retry.1s",
        b"k",
        b"v",
    )
    assert USER in write.headers
    assert (envelope.id, envelope.attempt, envelope.due) == ("ID/0/5", 2, NOW + 1000)
    assert envelope.error_message == "not yet"


def test_the_retry_of_a_parked_row_keeps_its_origin_and_counts_on():
    outcome = judge(delay=1000).failed(parked(), Retry("still not"))
    (write,) = outcome.writes
    envelope = parse(write.headers)
    assert write.topic == "shop.retry.2s"
    assert (envelope.origin_partition, envelope.origin_offset, envelope.attempt) == (3, 7, 3)


def test_a_row_whose_delays_are_used_up_is_buried():
    outcome = judge(delay=1000).failed(parked(attempt=3), Retry("never"))
    assert (outcome.kind, outcome.reason) == ("bury", "exhausted")


def test_a_buried_row_says_why():
    outcome = judge().failed(Record("orders", 0, 5, b"k", b"v"), Bury("no such thing"))
    assert (outcome.kind, outcome.reason) == ("bury", "rejected")
    assert parse(outcome.writes[0].headers).error_message == "no such thing"


def test_a_record_at_fault_is_buried_with_its_reason_whatever_the_policy_says():
    record = Record("orders", 0, 5, b"k", b"v")
    outcome = judge().proven(record, "failed-expression", ValueError("[CAST]"))
    assert (outcome.kind, outcome.reason) == ("bury", "failed-expression")


def test_a_record_for_another_app_is_skipped():
    record = parked(app="other")._replace(topic="orders")
    judged = judge().unseen(record)
    assert not isinstance(judged, ForHandler | NotDue)
    assert judged.kind == "skip"


def test_a_broken_envelope_is_buried():
    record = Record("shop.retry.1s", 0, 0, b"k", b"v", (("redrive-app", b"shop"),), NOW - 1000)
    judged = judge(delay=1000).unseen(record)
    assert not isinstance(judged, ForHandler | NotDue)
    assert (judged.kind, judged.reason) == ("bury", "broken-envelope")


def test_a_record_that_is_not_due_waits():
    assert isinstance(judge(delay=1000).unseen(parked(due=NOW + 1)), NotDue)


def test_a_record_that_goes_back_to_its_origin_needs_no_handler():
    judged = judge(delay=1000, redeliver="origin").unseen(parked())
    assert not isinstance(judged, ForHandler | NotDue)
    assert (judged.kind, judged.writes[0].topic, judged.writes[0].partition) == ("hop", "orders", 3)


@pytest.mark.parametrize("delay", [None, 1000])
def test_a_record_for_the_handler_is_reported(delay):
    record = Record("orders", 0, 0, b"k", b"v") if delay is None else parked()
    assert isinstance(judge(delay=delay).unseen(record), ForHandler)


def test_a_record_that_waited_for_a_recovery_is_buried_as_it_was_decided():
    judged = judge(delay=1000).unseen(parked(dead_reason="exhausted"))
    assert not isinstance(judged, ForHandler | NotDue)
    assert (judged.kind, judged.reason) == ("bury", "exhausted")


def test_a_record_of_a_topic_that_the_frame_handler_has_not_waits_for_a_version_that_has():
    judged = judge(delay=1000).unseen(parked(origin_topic="refunds"))
    assert not isinstance(judged, ForHandler | NotDue)
    assert (judged.kind, judged.reason, judged.writes[0].topic) == (
        "hop",
        "no-handler",
        "shop.retry.2s",
    )
    assert parse(judged.writes[0].headers).unhandled_since == NOW
    assert isinstance(judge(delay=1000).unseen(parked(origin_topic="refunds", due=NOW + 1)), NotDue)
