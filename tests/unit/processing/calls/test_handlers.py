"""What handlers can be, see, ask and say: sync and async, decoding, resources, context."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from redrive import (
    App,
    ConfigurationError,
    ContextError,
    InPlace,
    Retry,
    RetryPolicy,
    field,
    header,
    key,
)
from redrive.errors import ResourceError
from redrive.testing import Simulation


def app_with(function, app=None, topic="orders", **options):
    app = app or App("items")
    app.handler(topic, **options)(function)
    return app


def run(app, *values, **options):
    """Run the app with these values in its topic, to the end; gives the simulation."""
    with Simulation(app, **options) as sim:
        for value in values:
            sim.send("orders", value, key="k")
        sim.run_until_empty()
    return sim


def errors(sim):
    return [str(attempt.error) for attempt in sim.attempts if attempt.error]


# Sync and async


def test_an_async_handler_is_awaited_and_retried():
    seen = []

    async def handle(record, ctx):
        await asyncio.sleep(0)
        seen.append(ctx.attempt)
        ctx.send("done", record.value)
        if ctx.attempt == 1:
            raise Retry("not yet")

    sim = run(app_with(handle, retry=RetryPolicy("5m")), b"v")
    assert seen == [1, 2]
    assert [record.value for record in sim.sent("done")] == [b"v"]


def test_an_async_handler_that_does_not_end_is_timed_out():
    ended = []

    async def handle(record, ctx):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(record.value)

    sim = run(app_with(handle, timeout="1ms"), b"v")
    [dead] = sim.dead
    assert ended == [b"v"]
    assert dead.envelope.error_type == "redrive.errors.HandlerTimeout"
    assert "'orders' did not end within 1 ms for orders[0]@0" in dead.envelope.error_message


def test_a_handlers_own_timeout_is_its_own_error():
    async def handle(record, ctx):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    sim = run(app_with(handle, timeout="1h"), b"v")
    assert sim.dead[0].envelope.error_type == "TimeoutError"


# Decoding


def test_a_decoder_that_returns_a_coroutine_decodes_nothing():
    async def work(value):
        raise AssertionError("never runs")

    def handle(record, ctx):
        raise AssertionError("never called")

    sim = run(app_with(handle, decode=lambda value: work(value)), b"v")  # noqa: PLW0108 -- it is not async itself
    assert sim.dead[0].reason == "undecodable"
    assert "decode= must not be async" in sim.dead[0].envelope.error_message


def test_records_are_decoded_and_keep_their_bytes():
    seen = []
    app = app_with(lambda record, ctx: seen.append((record.data, record.value)), decode=json.loads)
    run(app, b'{"id": 7}')
    assert seen == [({"id": 7}, b'{"id": 7}')]


def test_without_a_decoder_the_data_is_the_value():
    seen = []
    run(app_with(lambda record, ctx: seen.append(record.data)), b"v", None)
    assert seen == [b"v", None]


def test_a_tombstone_is_not_decoded():
    seen = []
    run(app_with(lambda record, ctx: seen.append(record.data), decode=json.loads), None)
    assert seen == [None]


@pytest.mark.parametrize(
    "chosen", [None, header("id"), field("id"), key, lambda record: record.data["id"]]
)
def test_what_cannot_be_decoded_is_buried_at_once_with_its_bytes_intact(chosen):
    retry = RetryPolicy("5m", first=InPlace(3), on_exhausted="discard")
    app = app_with(lambda record, ctx: None, decode=json.loads, retry=retry, id=chosen)
    sim = run(app, b"\xff{", b"{}")
    [dead] = sim.dead
    assert (dead.reason, dead.record.value) == ("undecodable", b"\xff{")
    assert "orders[0]@0 cannot be decoded: UnicodeDecodeError" in dead.envelope.error_message
    assert [each.record.value for each in sim.attempts] == [b"{}"]


@pytest.mark.parametrize(
    ("error", "retry_on"),
    [(Retry("the registry is down"), None), (ConnectionResetError("down"), [ConnectionError])],
)
def test_a_decoder_that_cannot_ask_its_registry_is_retried(error, retry_on):
    down = [error, error]

    def decode(value):
        if down:
            raise down.pop()
        return value.decode()

    seen = []
    app = app_with(
        lambda record, ctx: seen.append((record.data, ctx.attempt)),
        decode=decode,
        retry=RetryPolicy("5m 5m", retry_on=retry_on),
    )
    sim = run(app, b"v")
    assert seen == [("v", 3)]
    assert (sim.now, sim.dead) == ("10m", [])


# Resources


def app_with_resources(log, *, fails=False):
    app = App("items")

    @app.resource
    def pool():
        log.append("open pool")
        yield "the pool"
        log.append("close pool")

    @app.resource
    async def http():
        log.append("open http")
        if fails:
            raise OSError("no route")
        await asyncio.sleep(0)
        yield "the client"
        log.append("close http")

    def handle(record, ctx):
        log.append((ctx.resources.pool, ctx.resources.http))

    return app_with(handle, app)


def test_resources_are_opened_once_and_closed_in_reverse():
    log = []
    run(app_with_resources(log), b"1", b"2")
    handled = [("the pool", "the client")] * 2
    assert log == ["open pool", "open http", *handled, "close http", "close pool"]


def test_resources_are_replaced_in_tests():
    log = []
    run(app_with_resources(log), b"1", resources={"http": "a fake"})
    assert log == ["open pool", ("the pool", "a fake"), "close pool"]


def test_a_resource_that_does_not_exist_cannot_be_replaced():
    with pytest.raises(ConfigurationError, match="no resource is called htpp; there are: http"):
        Simulation(app_with_resources([]), resources={"htpp": "a fake"})


def test_a_resource_that_cannot_be_opened_closes_the_others_and_is_named():
    log = []
    with pytest.raises(ResourceError, match='"http" could not be opened: OSError: no route'):
        Simulation(app_with_resources(log, fails=True))
    assert log == ["open pool", "open http", "close pool"]


def test_an_app_without_async_parts_can_be_simulated_inside_a_running_loop():
    async def body():
        return run(app_with(lambda record, ctx: None), b"v")

    assert len(asyncio.run(body()).attempts) == 1


# Context


def test_db_without_a_database_delivery_is_an_error_that_names_the_delivery():
    sim = run(app_with(lambda record, ctx: ctx.db.execute("select 1")), b"v")
    [text] = errors(sim)
    assert "'items' has the delivery 'at-least-once'" in text
    assert '"idempotent"' in text
    app = app_with(lambda record, ctx: ctx.db, App("items", delivery="outbox"))
    [text] = errors(run(app, b"v"))
    assert "pass Simulation(app, db=...)" in text


def test_db_is_the_connection_of_the_test():
    app = App("items", delivery="idempotent")
    sim = run(app_with(lambda record, ctx: ctx.db.append(record.value), app), b"v", db=[])
    assert errors(sim) == []


def test_the_idempotency_key_is_the_same_at_every_attempt_and_no_other_records():
    seen = []

    def handle(record, ctx):
        seen.append((record.value, ctx.idempotency_key))
        raise Retry("not yet")

    sim = run(app_with(handle, retry=RetryPolicy("5m", first=InPlace(2))), b"1", b"2")
    topic = sim.broker.topic_id("orders")
    assert (
        sorted(seen)
        == [(b"1", f"items/orders/{topic}/0/0")] * 3 + [(b"2", f"items/orders/{topic}/0/1")] * 3
    )


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (field("id"), "items/orders/7"),
        (header("id"), "items/orders/8"),
        (key, "items/orders/9"),
        (lambda record: record.value, 'items/orders/{"id": 7}'),
    ],
)
def test_the_id_is_the_applications_choice(chosen, expected):
    seen = []
    app = app_with(
        lambda record, ctx: seen.append(ctx.idempotency_key), id=chosen, decode=json.loads
    )
    with Simulation(app) as sim:
        sim.send("orders", {"id": 7}, key="9", headers=(("id", b"8"),))
        sim.run()
    assert seen == [expected]


def test_an_id_of_any_text_can_be_parked():
    def handle(record, ctx):
        raise Retry("not yet")

    app = app_with(handle, id=field("id"), decode=json.loads, retry=RetryPolicy("5m"))
    sim = run(app, b'{"id": "\\ud800"}', b'{"id": "a\\u0000"}')
    assert [dead.envelope.id for dead in sim.dead] == ["0xeda080", "0x6100"]


def test_what_is_sent_is_written_as_it_was_given():
    def handle(record, ctx):
        ctx.send("out", "text", key="k", headers={"a": b"1"})
        ctx.send("out", None, key=b"\xff", headers=[("a", None), ("a", b"2")])
        ctx.send("out", b"v", headers=record.headers)

    with Simulation(app_with(handle)) as sim:
        passed_on = (("redrive-app", b"x"), ("mine", b"y"))
        sim.send("orders", b"v", headers=passed_on)
        sim.run()
        assert [(sent.key, sent.value, sent.headers) for sent in sim.sent("out")] == [
            (b"k", b"text", (("a", b"1"),)),
            (b"\xff", None, (("a", None), ("a", b"2"))),
            (None, b"v", (("mine", b"y"),)),  # redrive's own are about the record, not this
        ]


@pytest.mark.parametrize(
    ("value", "written"),
    [({"id": "7"}, b'{"id":"7"}'), ([1, None], b"[1,null]"), (7, b"7"), (1.5, b"1.5")],
)
def test_plain_data_is_sent_as_json(value, written):
    sim = run(app_with(lambda record, ctx: ctx.send("out", value)), b"v")
    assert [sent.value for sent in sim.sent("out")] == [written]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"value": object()}, "the value is object; encode it to bytes or text first"),
        ({"value": b"v", "key": 7}, "the key is int; encode it"),
        ({"value": b"v", "headers": {"a": 7}}, "the header 'a' is int; encode it"),
        ({"value": b"v", "headers": {b"a": b"1"}}, "(b'a', b'1') cannot be a header"),
        ({"value": b"v", "headers": {"a\0b": b"1"}}, "cannot be a header"),
        ({"value": b"v", "headers": {"\ud800": b"1"}}, "cannot be a header"),
        ({"value": b"v", "headers": [("a",)]}, "('a',) cannot be a header: it is a name"),
        ({"value": b"v", "headers": "abc"}, "'a' cannot be a header: it is a name"),
        ({"value": b"v", "partition": 2**31}, "('out'): there is no partition 2147483648"),
        ({"value": b"v", "partition": -1}, "('out'): there is no partition -1"),
        ({"value": b"v", "partition": "1"}, "('out'): there is no partition '1'"),
    ],
)
def test_sending_what_cannot_be_written_says_what_to_do(message, told):
    sim = run(app_with(lambda record, ctx: ctx.send("out", **message)), b"v")
    assert told in errors(sim)[0]


@pytest.mark.parametrize("fails", [False, True])
def test_sending_after_the_outcome_is_an_error(fails):
    kept = []

    def handle(record, ctx):
        kept.append(ctx)
        if fails:
            raise RuntimeError("no")

    run(app_with(handle), b"v")
    with pytest.raises(ContextError, match=r"ctx.send\('out'\) after the record's outcome"):
        kept[0].send("out", b"v")


def test_ack_without_manual_acks_says_how_to_get_them():
    sim = run(app_with(lambda record, ctx: ctx.ack()), b"v")
    assert 'add ack="manual" to @app.handler' in errors(sim)[0]


def test_what_a_handler_adds_to_a_line_is_kept(caplog):
    def handle(record, ctx):
        ctx.log.warning("here", extra={"order": 7, "topic": "not this"})

    run(app_with(handle), b"v")
    [line] = caplog.records
    assert (line.order, line.topic) == (7, "orders")


def test_the_log_tells_whose_it_is(caplog):
    with caplog.at_level(logging.INFO):
        run(app_with(lambda record, ctx: ctx.log.info("here")), b"v")
    [line] = caplog.records
    assert (line.name, line.message) == ("redrive.app.items", "here")
    told = (line.app, line.topic, line.partition, line.offset, line.attempt)
    assert told == ("items", "orders", 0, 0, 1)


def test_traces_are_kept_only_where_asked_for():
    def handle(record, ctx):
        raise RuntimeError("no")

    assert run(app_with(handle), b"v").dead[0].envelope.error_trace is None
    traced = run(app_with(handle, App("items", error_traces=True)), b"v").dead[0].envelope
    assert "in handle" in traced.error_trace
