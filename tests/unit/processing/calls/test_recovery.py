"""`@app.recover`: called before a record is buried, tried again until it works, never hot."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from redrive import App, Backoff, Bury, InPlace, Record, RetryPolicy
from redrive.durations import milliseconds
from redrive.errors import ContextError
from redrive.testing import Simulation


def app_with_recovery(retry, failures=0, error=RuntimeError("no"), *, is_async=False):  # noqa: B008 -- one is enough
    """An app whose handler always fails, and whose recovery fails so many times."""
    app = App("items")
    app.recovered = []
    left = [failures]

    @app.handler("orders", retry=retry)
    def handle(record, ctx):
        ctx.send("never", b"of a failed attempt")
        raise error

    def recover(record, error, ctx):
        ctx.send("refunds", record.value, key=record.key)
        if left[0] > 0:
            left[0] -= 1
            raise ConnectionError("the refund service is down")
        app.recovered.append((record, error, ctx.envelope))

    async def recover_async(record, error, ctx):
        recover(record, error, ctx)

    app.recover(recover_async if is_async else recover)
    return app


def calls(sim):
    return [("recovery" if each.recovery else "handler", each.after) for each in sim.attempts]


def test_how_often_the_handler_was_called_does_not_count_against_the_recovery():
    in_place = InPlace(attempts=6, backoff=Backoff("1s", factor=1, jitter=0))
    with Simulation(app_with_recovery(RetryPolicy(first=in_place), failures=3)) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        recoveries = [(each.after, each.tries) for each in sim.attempts if each.recovery]
        assert recoveries == [("5s", 1), ("6s", 2), ("8s", 3), ("12s", 4)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("redeliver", ["handler", "origin"])
def test_a_recovery_that_fails_twice_then_works(is_async, redeliver):
    retry = RetryPolicy("5m 30m", redeliver=redeliver)
    app = app_with_recovery(retry, failures=2, is_async=is_async)
    with Simulation(app) as sim:
        sim.send("orders", b"v", key="k", headers=(("id", b"1"),))
        sim.run_until_empty()
        assert calls(sim) == [
            ("handler", "0s"),
            ("handler", "5m"),
            ("handler", "35m"),
            ("recovery", "35m"),
            ("recovery", "40m"),  # tried again later, in the shortest delay
            ("recovery", "45m"),
        ]
        assert [each.attempt for each in sim.attempts] == [1, 2, 3, 3, 3, 3]  # the count is kept
        assert [(sent.key, sent.value) for sent in sim.sent("refunds")] == [(b"k", b"v")]
        assert sim.sent("never") == []
        [dead] = sim.dead
        assert (dead.reason, dead.envelope.attempt) == ("exhausted", 3)
        assert dead.envelope.error_message == "no"  # the handler's error, not the recovery's
        assert (dead.record.key, dead.record.headers) == (b"k", (("id", b"1"),))
        assert (sim.parked, sim.lag) == ([], 0)


def test_a_recovery_gets_the_record_the_error_and_the_context():
    error = RuntimeError("no")
    app = app_with_recovery(RetryPolicy(), error=error)
    with Simulation(app) as sim:
        sim.send("orders", b"v", key="k")
        sim.run()
        [(record, given, envelope)] = app.recovered
        assert isinstance(record, Record)
        assert (record.value, record.data, given) == (b"v", b"v", error)
        assert (envelope.attempt, envelope.error_message) == (1, "no")


def test_a_recovery_in_a_later_process_gets_the_error_as_far_as_it_is_known():
    app = app_with_recovery(RetryPolicy("5m"), failures=1, error=Bury("malformed"))
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run()
        sim.crash()
        sim.run_until_empty()
        [(_, error, envelope)] = app.recovered
        assert "malformed" in str(error)
        assert envelope.dead_reason == "rejected"
        assert [dead.reason for dead in sim.dead] == ["rejected"]
        assert calls(sim) == [("handler", "0s"), ("recovery", "0s"), ("recovery", "5m")]


def test_without_delay_topics_a_recovery_backs_off_in_memory():
    app = app_with_recovery(RetryPolicy(), failures=10)
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        times = [milliseconds(each.after) for each in sim.attempts if each.recovery]
        waits = [later - earlier for earlier, later in pairwise(times)]
        assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000, 60000]
        assert sum(not each.recovery for each in sim.attempts) == 1
        assert len(sim.dead) == len(sim.sent("refunds")) == 1


def test_a_recovery_that_backs_off_does_not_block_other_keys():
    app = app_with_recovery(RetryPolicy(), failures=3)
    with Simulation(app) as sim:
        sim.send("orders", b"1", key="a")
        sim.run()
        sim.send("orders", b"2", key="b")
        sim.run()
        assert [each.record.value for each in sim.attempts if not each.recovery] == [b"1", b"2"]


def test_a_crash_between_recoveries_repeats_work_and_loses_nothing():
    app = app_with_recovery(RetryPolicy(), failures=2)
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run()
        assert (sim.dead, sim.lag) == ([], 1)
        sim.crash()
        sim.run_until_empty()
        assert (len(sim.dead), sim.lag) == (1, 0)


def test_what_expires_on_its_way_back_to_its_origin_is_recovered_too():
    retry = RetryPolicy("5m", redeliver="origin", max_duration="6m")
    app = app_with_recovery(retry)
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run()
        sim.clock.advance("1h")
        sim.run()
        assert [error.args for _, error, _ in app.recovered] == [("RuntimeError: no",)]
        assert [dead.reason for dead in sim.dead] == ["expired"]


def test_what_is_discarded_is_recovered_first_and_its_messages_go_out():
    app = app_with_recovery(RetryPolicy("5m", on_exhausted="discard"), failures=1)
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert (len(app.recovered), len(sim.sent("refunds")), sim.dead) == (1, 1, [])
        assert sim.outcomes[-1].kind == "discard"


def test_in_place_tries_come_before_the_recovery():
    app = app_with_recovery(RetryPolicy(first=InPlace(3)))
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert [kind for kind, _ in calls(sim)] == ["handler"] * 3 + ["recovery"]


def test_each_handler_has_its_own_recovery_or_the_apps():
    app = App("items")
    called = []

    def fail(record, ctx):
        raise RuntimeError("no")

    app.handler("a")(fail)
    app.handler("b")(fail)

    @app.recover
    def everybodys(record, error, ctx):
        called.append(("everybodys", record.topic))

    @app.recover("b")
    def own(record, error, ctx):
        called.append(("own", record.topic))

    with Simulation(app) as sim:
        sim.send("a", b"1")
        sim.send("b", b"2")
        sim.run()
    assert sorted(called) == [("everybodys", "a"), ("own", "b")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("ack", ["auto", "manual"])
def test_a_recovery_that_acknowledges_the_record_has_taken_care_of_it(is_async, ack):
    app = App("items")

    @app.handler("orders", retry=RetryPolicy("1m"), ack=ack)
    def handle(record, ctx):
        raise Bury("no")

    def recover(record, error, ctx):
        ctx.send("refunds", record.value)
        ctx.ack()

    async def recover_async(record, error, ctx):
        recover(record, error, ctx)

    app.recover(recover_async if is_async else recover)
    with Simulation(app) as sim:
        sim.send("orders", "an order")
        sim.run_until_empty()
        assert [each.value for each in sim.sent("refunds")] == [b"an order"]
        assert (sim.dead, sim.parked) == ([], [])
        assert sim.lag == 0


def test_an_acknowledgement_of_a_recovery_that_fails_after_it_does_not_count():
    app = App("items")
    calls = []

    @app.handler("orders", retry=RetryPolicy("1m"))
    def handle(record, ctx):
        raise Bury("no")

    @app.recover
    def recover(record, error, ctx):
        calls.append(record)
        if len(calls) == 1:
            ctx.ack()
            raise ConnectionError("after all not")

    with Simulation(app) as sim:
        sim.send("orders", "an order")
        sim.run_until_empty()
        assert len(calls) == 2
        assert [each.reason for each in sim.dead] == ["rejected"]


def test_a_recovery_fails_by_raising_only():
    app = App("items")
    said = []

    @app.handler("orders", retry=RetryPolicy("1m"))
    def handle(record, ctx):
        raise Bury("no")

    @app.recover
    def recover(record, error, ctx):
        try:
            ctx.fail(error)
        except ContextError as refused:
            said.append(str(refused))

    with Simulation(app) as sim:
        sim.send("orders", "an order")
        sim.run_until_empty()
        assert "raise the error instead" in said[0]


def test_a_record_that_waits_for_a_recovery_which_the_next_version_lacks_is_buried():
    app = app_with_recovery(RetryPolicy("5m"), failures=99, error=Bury("no address"))
    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run()
        assert [kept.reason for kept in sim.parked] == ["rejected"]
        following = App("items")

        @following.handler("orders", retry=RetryPolicy("5m"))
        def handle(record, ctx):
            raise AssertionError("it has ended: it is not handled again")

        with Simulation(following, broker=sim.broker, clock=sim.clock) as later:
            later.run_until_empty()
            assert [dead.reason for dead in later.dead] == ["rejected"]
            assert later.dead[0].envelope.error_message == "no address"
            assert later.attempts == []


def test_an_async_recovery_has_the_time_of_its_handler():
    app, calls = App("items"), []

    @app.handler("orders", timeout="1ms", retry=RetryPolicy("5m"))
    async def handle(record, ctx):
        raise Bury("never")

    @app.recover
    async def recover(record, error, ctx):
        calls.append(record.value)
        if len(calls) == 1:
            await asyncio.Event().wait()

    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run()
        assert len(sim.parked) == 1
        sim.run_until_empty()
        assert [dead.reason for dead in sim.dead] == ["rejected"]
    assert calls == [b"v", b"v"]
