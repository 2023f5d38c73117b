"""What happens at the edges: removed delays, signals in groups, odd errors, bad sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from redrive import App, Bury, Context, Record, Retry, RetryPolicy
from redrive.testing import Simulation


def app_with(function: Callable[..., Any], **options: Any) -> App:
    app = App("items")
    app.handler("orders", **options)(function)
    return app


def fail(record: Record, ctx: Context) -> None:
    raise RuntimeError("no")


def succeed(record: Record, ctx: Context) -> None:
    """Nothing to do."""


def run(app: App, value: object = b"v") -> Simulation:
    with Simulation(app) as sim:
        sim.send("orders", value)
        sim.run_until_empty()
    return sim


def test_records_parked_under_a_delay_that_was_removed_are_still_read():
    with Simulation(app_with(fail, retry=RetryPolicy("5m"))) as old:
        old.send("orders", b"v")
        old.run()
        app = app_with(succeed, retry=RetryPolicy("10m"))
        with Simulation(app, broker=old.broker, clock=old.clock) as new:
            assert [kept.record.value for kept in new.parked] == [b"v"]
            new.run_until_empty()
            assert [attempt.record.value for attempt in new.attempts] == [b"v"]


def test_after_is_never_early_also_where_the_next_version_has_no_delays():
    def rate_limited(record: Record, ctx: Context) -> None:
        raise Retry("rate limited", after="1h")

    with Simulation(app_with(rate_limited, retry=RetryPolicy("5m"))) as old:
        old.send("orders", b"v")
        old.run()
        app = app_with(succeed, retry=RetryPolicy())
        with Simulation(app, broker=old.broker, clock=old.clock) as new:
            new.run_until_empty()
            assert [attempt.after for attempt in new.attempts] == ["1h"]


@pytest.mark.parametrize(("given", "seen"), [(-1, None), (-5, -5), (-(2**63), -(2**63))])
def test_a_record_from_before_1970_is_retried_with_its_time(given, seen):
    times = []

    def once_more(record: Record, ctx: Context) -> None:
        times.append(record.timestamp)
        if ctx.attempt == 1:
            raise Retry("not yet")

    with Simulation(app_with(once_more, retry=RetryPolicy("5m"))) as sim:
        sim.send("orders", b"v", timestamp=given)
        sim.run_until_empty()
        assert (times, sim.dead) == ([seen, seen], [])


@pytest.mark.parametrize(
    ("raised", "reasons"), [([Bury("never"), Retry("later")], ["rejected"]), ([Retry()], [])]
)
def test_a_signal_inside_a_task_group_is_still_a_signal(raised, reasons):
    async def handle(record: Record, ctx: Context) -> None:
        if ctx.attempt > 1:
            return

        async def task(error: Exception) -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            for error in raised:
                group.create_task(task(error))

    sim = run(app_with(handle, retry=RetryPolicy("5m", retry_on=[OSError])))
    assert [dead.reason for dead in sim.dead] == reasons


@pytest.mark.parametrize(
    ("innermost", "reason"), [(Bury("never"), "rejected"), (OSError("no"), "exhausted")]
)
def test_groups_in_groups_may_be_as_deep_as_they_like(innermost, reason):
    def handle(record: Record, ctx: Context) -> None:
        error: Exception = innermost
        for _ in range(3000):
            error = ExceptionGroup("group", [error])
        raise error

    sim = run(app_with(handle, retry=RetryPolicy()))
    assert [dead.reason for dead in sim.dead] == [reason]


def test_a_handler_cannot_change_what_is_parked_or_buried():
    def handle(record: Record, ctx: Context) -> None:
        record.value = b"changed"  # type: ignore[misc]  # -- that is the point

    sim = run(app_with(handle))
    assert [dead.record.value for dead in sim.dead] == [b"v"]


def test_a_recovery_sends_once_however_often_the_dead_topic_refuses():
    app = app_with(fail)
    app.recover(lambda record, error, ctx: ctx.send("refunds", b"1"))
    with Simulation(app) as sim:
        sim.broker.refuse("items.dead", times=10)
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert (len(sim.sent("refunds")), len(sim.dead)) == (1, 1)


def test_a_record_that_cannot_be_decoded_is_recovered_before_it_is_buried():
    app = app_with(succeed, decode=json.loads)
    seen: list[tuple[bytes | None, str | None]] = []
    app.recover(lambda record, _, ctx: seen.append((record.value, ctx.envelope.dead_reason)))
    sim = run(app, b"{")
    assert seen == [(b"{", "undecodable")]
    assert [dead.reason for dead in sim.dead] == ["undecodable"]


def test_failures_that_a_batch_handler_tells_are_in_the_attempts():
    sim = run(app_with(lambda records, ctx: ctx.fail(records[0], OSError("no")), batch=2))
    assert isinstance(sim.attempts[0].error, OSError)


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_decoding_error_without_a_text_is_still_one():
    def decode(value: bytes) -> None:
        raise SilentError

    sim = run(app_with(succeed, decode=decode, retry=RetryPolicy("5m")))
    assert [dead.reason for dead in sim.dead] == ["undecodable"]


@pytest.mark.parametrize(
    "bad",
    [
        {"topic": "out", "headers": {"\ud800": b""}},
        {"topic": "no such/topic"},
        {"topic": None},
        {"topic": "out", "partition": -3},
        {"topic": "out", "value": object()},
    ],
)
def test_a_send_that_cannot_be_written_is_the_failure_of_its_record(bad):
    sim = run(app_with(lambda record, ctx: ctx.send(**{"value": b"v", **bad})))
    assert [dead.envelope.error_type for dead in sim.dead] == ["redrive.errors.ContextError"]
