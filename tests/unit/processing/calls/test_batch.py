"""Batch handlers: many records in one call, and only the failing ones fail."""

from __future__ import annotations

import json

import pytest

from redrive import App, Backoff, ContextError, GiveBack, InPlace, Retry, RetryPolicy
from redrive.testing import Simulation


def batch_app(function, *, size=10, is_async=False, delivery="at-least-once", **options):
    app = App("items", delivery=delivery)

    async def call(records, ctx):
        function(records, ctx)

    app.handler("orders", batch=size, **options)(call if is_async else function)
    return app


def run(app, *values, keys="abc", partitions=1):
    with Simulation(app, partitions=partitions) as sim:
        for number, value in enumerate(values):
            sim.send("orders", value, key=keys[number % len(keys)])
        sim.run_until_empty()
    return sim


def dead_values(sim):
    return [(dead.record.value, dead.reason) for dead in sim.dead]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_takes_up_to_so_many_records_of_all_keys(is_async):
    sizes = []
    values = [str(number) for number in range(25)]
    sim = run(
        batch_app(lambda records, ctx: sizes.append(len(records)), is_async=is_async), *values
    )
    assert sum(sizes) == 25
    assert max(sizes) == 10
    assert (sim.lag, sim.dead) == (0, [])


def test_records_of_one_key_stay_in_order_across_batches():
    seen = []
    app = batch_app(lambda records, ctx: seen.extend(r.value for r in records), size=3)
    values = [str(number) for number in range(10)]
    run(app, *values, keys="a")
    assert seen == [value.encode() for value in values]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_says_which_records_failed_and_the_others_count(is_async):
    def handle(records, ctx):
        for record in records:
            if record.value == b"bad":
                ctx.fail(record, Retry("not yet"))

    sim = run(batch_app(handle, retry=RetryPolicy("5m"), is_async=is_async), "1", "bad", "2")
    assert [(each.record.value, each.after) for each in sim.attempts] == [
        (b"1", "0s"),
        (b"bad", "0s"),
        (b"2", "0s"),
        (b"bad", "5m"),
    ]
    assert dead_values(sim) == [(b"bad", "exhausted")]


@pytest.mark.parametrize("given", ["a negative amount", ValueError, None, []])
def test_a_record_that_fails_with_something_else_than_an_exception_has_failed(given):
    sim = run(batch_app(lambda records, ctx: ctx.fail(records[1], given)), "1", "bad", "2")
    [dead] = sim.dead
    assert dead.record.value == b"bad"
    assert "ctx.fail(record, ...) was given" in dead.envelope.error_message
    assert "not an exception" in dead.envelope.error_message


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_that_raises_is_tried_one_by_one_and_only_the_failing_ones_fail(is_async):
    calls = []

    def handle(records, ctx):
        calls.append([record.value for record in records])
        ctx.send("done", str(len(records)))
        if b"bad" in calls[-1]:
            raise RuntimeError("no")

    sim = run(batch_app(handle, is_async=is_async), "1", "bad", "2")
    assert calls == [[b"1", b"bad", b"2"], [b"1"], [b"bad"], [b"2"]]
    assert dead_values(sim) == [(b"bad", "exhausted")]
    assert [sent.value for sent in sim.sent("done")] == [b"1", b"1"]  # of those that were done


@pytest.mark.parametrize("fails", ["handler", "decoder"])
@pytest.mark.parametrize("first", [InPlace, GiveBack])
@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
@pytest.mark.parametrize("is_async", [False, True])
def test_nobody_overtakes_a_record_of_its_key_that_is_tried_again(is_async, delivery, first, fails):
    calls, handled = [], []

    def try_it(value):
        calls.append(value)
        if value == b"a2" and calls.count(value) < 5:
            raise Retry("not yet")
        return value

    def handle(records, ctx):
        for record in records if fails == "handler" else ():
            try_it(record.value)
        handled.extend(record.value for record in records)

    app = batch_app(
        handle,
        is_async=is_async,
        delivery=delivery,
        decode=try_it if fails == "decoder" else None,
        retry=RetryPolicy(first=first(9, Backoff("1s", factor=1, jitter=0))),
    )
    sim = run(app, "a1", "b1", "a2", "b2", "a3", "b3", keys="ab")
    assert [value for value in handled if value[:1] == b"a"] == [b"a1", b"a2", b"a3"]
    assert sorted(handled) == [b"a1", b"a2", b"a3", b"b1", b"b2", b"b3"]
    assert (sim.lag, sim.dead) == (0, [])


@pytest.mark.parametrize("is_async", [False, True])
def test_what_cannot_be_decoded_in_the_middle_leaves_the_others_alone(is_async):
    seen = []

    def handle(records, ctx):
        seen.append([record.data for record in records])

    app = batch_app(handle, decode=json.loads, is_async=is_async)
    sim = run(app, "1", "{", "3", None, keys="abcd")
    assert seen == [[1, 3, None]]
    assert dead_values(sim) == [(b"{", "undecodable")]


def test_a_batch_of_nothing_but_undecodable_records_calls_nobody():
    sim = run(batch_app(lambda records, ctx: None, decode=json.loads), "{", "[")
    assert sim.attempts == []
    assert dead_values(sim) == [(b"{", "undecodable"), (b"[", "undecodable")]


def test_messages_go_out_with_their_record_or_with_the_batch():
    def handle(records, ctx):
        ctx.send("batches", str(len(records)))
        for record in records:
            ctx.of(record).send("done", record.value)
            if record.value == b"bad":
                ctx.fail(record, RuntimeError("no"))

    sim = run(batch_app(handle), "bad", "1", "2")
    assert [sent.value for sent in sim.sent("batches")] == [b"3"]
    assert [sent.value for sent in sim.sent("done")] == [b"1", b"2"]


def test_messages_of_a_batch_that_failed_entirely_are_not_published():
    def handle(records, ctx):
        ctx.send("batches", "x")
        for record in records:
            ctx.fail(record, RuntimeError("no"))

    sim = run(batch_app(handle), "1", "2")
    assert sim.sent("batches") == []
    assert len(sim.dead) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_contexts_of_a_batch_end_with_it(fails):
    kept = []

    def handle(records, ctx):
        kept.extend([ctx, ctx.of(records[0])])
        if fails:
            raise RuntimeError("no")

    run(batch_app(handle), "1", "2")
    for context in kept:
        with pytest.raises(ContextError, match="after the record's outcome"):
            context.send("late", b"v")


def test_each_record_of_a_batch_has_its_own_envelope_and_count():
    seen = []

    def handle(records, ctx):
        for record in records:
            seen.append((record.value, ctx.of(record).attempt, ctx.of(record).tries))
            if record.value == b"bad":
                ctx.fail(record, Retry("not yet"))

    run(batch_app(handle, retry=RetryPolicy("5m", first=InPlace(2))), "bad", "1")
    assert seen == [(b"bad", 1, 1), (b"1", 1, 1), (b"bad", 1, 2), (b"bad", 2, 1)]


def test_a_record_that_is_not_of_the_batch_cannot_fail_in_it():
    kept = []

    def handle(records, ctx):
        kept.extend(records)
        if len(kept) > 1:
            ctx.fail(kept[0], RuntimeError("no"))

    sim = run(batch_app(handle, size=1), "1", "2")
    assert len(sim.dead) == 1
    assert "orders[0]@0 is not one of this call's records" in sim.dead[0].envelope.error_message


def test_recoveries_of_a_batch_handler_are_called_one_by_one():
    app = batch_app(lambda records, ctx: 1 / 0)
    seen = []

    @app.recover
    def recover(record, error, ctx):
        seen.append((record.value, type(error)))

    sim = run(app, "1", "2")
    assert seen == [(b"1", ZeroDivisionError), (b"2", ZeroDivisionError)]
    assert len(sim.dead) == 2
