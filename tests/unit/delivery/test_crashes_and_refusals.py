"""Crashes and refused writes: nothing is lost, and nothing is tried hot."""

from __future__ import annotations

import signal

import pytest

from redrive import App, InPlace, Retry, RetryPolicy
from redrive.record import TopicPartition
from redrive.testing import Simulation
from redrive.testing.virtual_clock import START


def app_failing_for(bad=(b"bad",), retry=None, **options):
    app = App("items", **options)

    @app.handler("orders", retry=retry or RetryPolicy("5m 30m"))
    def handle(record, ctx):
        ctx.send("done", record.value, key=record.key)
        if record.value in bad:
            raise RuntimeError("no")

    return app


def values(records):
    return [record.value for record in records]


@pytest.mark.parametrize("moment", ["0s", "1s", "5m", "34m59s", "35m"])
def test_a_crash_at_any_moment_loses_nothing_and_keeps_the_count(moment):
    with Simulation(app_failing_for()) as sim:
        sim.send("orders", b"bad", key="k")
        sim.send("orders", b"good", key="k")
        sim.advance(moment)
        sim.crash()
        sim.run_until_empty()
        assert [(each.after, each.attempt) for each in sim.attempts if each.error] == [
            ("0s", 1),
            ("5m", 2),
            ("35m", 3),
        ]
        assert values(sim.sent("done")) == [b"good"]
        assert [dead.record.value for dead in sim.dead] == [b"bad"]


def test_a_crash_before_anything_was_committed_repeats_it():
    with Simulation(app_failing_for(retry=RetryPolicy(first=InPlace(None)))) as sim:
        sim.send("orders", b"bad", key="a")
        sim.send("orders", b"good", key="b")
        sim.run()
        assert values(sim.sent("done")) == [b"good"]
        sim.crash()
        sim.run()
        tried = [each.record.value for each in sim.attempts]
        assert tried == [b"bad", b"good", b"bad"]  # what was done beyond the gap stays done


def test_a_crash_in_the_middle_of_hops_keeps_the_time_that_was_asked_for():
    app = App("items")

    @app.handler("orders", retry=RetryPolicy("5s 30s"))
    def handle(record, ctx):
        if ctx.attempt == 1:
            raise Retry("rate limited", after="37s")

    with Simulation(app) as sim:
        sim.send("orders", b"v")
        for _ in range(12):
            sim.advance("3s")
            sim.crash()
        sim.run_until_empty()
        assert [each.after for each in sim.attempts] == ["0s", "40s"]


def test_a_dead_topic_that_refuses_keeps_the_source_offset_and_is_not_tried_hot():
    with Simulation(app_failing_for(retry=RetryPolicy())) as sim:
        sim.broker.refuse("items.dead")
        sim.send("orders", b"bad", key="a")
        sim.send("orders", b"good", key="b")
        sim.advance("1h")
        assert len(sim.attempts) == 2  # the handler is not called again for it
        assert (sim.lag, sim.dead) == (1, [])
        sim.broker.accept("items.dead")
        sim.run_until_empty()
        assert (sim.lag, [dead.record.value for dead in sim.dead]) == (0, [b"bad"])


def test_a_refused_write_is_tried_again_less_and_less_often():
    with Simulation(app_failing_for(retry=RetryPolicy())) as sim:
        sim.broker.refuse("items.dead", times=7)
        sim.send("orders", b"bad")
        sim.run_until_empty()
        waited = (1 + 2 + 4 + 8 + 16 + 30 + 30) * 1000
        assert [dead.timestamp for dead in sim.sent("items.dead")] == [START + waited]


def test_a_refused_dead_letter_survives_a_crash():
    with Simulation(app_failing_for(retry=RetryPolicy())) as sim:
        sim.broker.refuse("items.dead")
        sim.send("orders", b"bad")
        sim.run()
        place = TopicPartition("orders", 0)
        assert sim.broker.progress("items").committed([place])[place].offset == 0
        sim.crash()
        sim.broker.accept("items.dead")
        sim.run_until_empty()
        assert (sim.lag, len(sim.dead), len(sim.attempts)) == (0, 1, 2)


def test_a_record_too_large_for_the_dead_topic_is_held_not_lost():
    with Simulation(app_failing_for(bad=(b"x" * 500,), retry=RetryPolicy())) as sim:
        sim.broker.configure("items.dead", {"max.message.bytes": "600"})
        sim.send("orders", b"x" * 500)
        sim.advance("10s")
        assert (sim.lag, sim.dead) == (1, [])
        sim.broker.configure("items.dead", {"max.message.bytes": "6000"})
        sim.run_until_empty()
        assert (sim.lag, len(sim.dead)) == (0, 1)


def test_a_delay_topic_that_refuses_once_makes_the_record_late_and_no_more():
    with Simulation(app_failing_for()) as sim:
        sim.broker.refuse("items.retry.5m", times=1)
        sim.send("orders", b"bad")
        sim.run_until_empty()
        assert [each.after for each in sim.attempts] == ["0s", "5m1s", "35m1s"]
        assert len(sim.dead) == 1


def test_an_outbound_topic_that_refuses_holds_the_record_until_it_takes_it():
    with Simulation(app_failing_for()) as sim:
        sim.send("orders", b"first")
        sim.run()
        sim.broker.refuse("done")
        sim.send("orders", b"good")
        sim.advance("10s")
        assert (sim.lag, values(sim.sent("done"))) == (1, [b"first"])
        sim.broker.accept("done")
        sim.advance("10s")
        assert (sim.lag, values(sim.sent("done"))) == (0, [b"first", b"good"])
        assert [each.record.value for each in sim.attempts] == [b"first", b"good"]


def test_messages_of_failed_attempts_are_never_published():
    app = App("items")

    @app.handler("orders", retry=RetryPolicy("5m", first=InPlace(2)))
    def handle(record, ctx):
        ctx.send("done", f"{ctx.attempt}.{ctx.tries}")
        if ctx.attempt == 1:
            raise RuntimeError("no")

    with Simulation(app) as sim:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert values(sim.sent("done")) == [b"2.1"]


def test_whatever_a_handler_raises_is_its_records_and_nobody_elses():
    app = App("items")

    @app.handler("orders")
    def handle(record, ctx):
        if record.value == b"bad":
            raise SystemExit(1)

    with Simulation(app) as sim:
        for value in (b"bad", b"good"):
            sim.send("orders", value, key="k")
        sim.run()
        assert [dead.envelope.error_type for dead in sim.dead] == ["SystemExit"]
        assert (len(sim.attempts), sim.lag) == (2, 0)


@pytest.fixture
def on_ctrl_c():
    """Sets what handles Ctrl-C: other tests of this process may have left something there."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


def as_a_spark_context_does(number, frame):
    raise KeyboardInterrupt


def interrupted_app(interrupt):
    app = App("items")

    @app.handler("orders")
    def handle(record, ctx):
        interrupt()

    return app


@pytest.mark.parametrize("handler", [signal.default_int_handler, as_a_spark_context_does])
def test_an_interrupt_is_the_users_and_stops_everything(handler, on_ctrl_c):
    on_ctrl_c(handler)
    with Simulation(interrupted_app(lambda: signal.raise_signal(signal.SIGINT))) as sim:
        sim.send("orders", b"v")
        with pytest.raises(KeyboardInterrupt):
            sim.run()
        assert (sim.lag, sim.dead) == (1, [])


def raise_keyboard_interrupt():
    raise KeyboardInterrupt


def test_an_interrupt_that_no_signal_can_have_raised_is_its_records(on_ctrl_c):
    on_ctrl_c(signal.SIG_IGN)
    with Simulation(interrupted_app(raise_keyboard_interrupt)) as sim:
        sim.send("orders", b"v")
        sim.run()
        assert [dead.envelope.error_type for dead in sim.dead] == ["KeyboardInterrupt"]


@pytest.mark.parametrize("chosen", [lambda record: record.data["id"], lambda record: object()])
def test_an_id_that_cannot_be_told_buries_the_failing_record_with_that_reason(chosen):
    app = App("items")

    @app.handler("orders", id=chosen)
    def handle(record, ctx):
        raise RuntimeError("no")

    with Simulation(app) as sim:
        sim.send("orders", b"v", timestamp=START)
        sim.run()
        [dead] = sim.dead
        assert dead.reason == "no-id"
        assert dead.envelope.error_type == "redrive.errors.NoIdError"
        assert "it failed with RuntimeError: no" in dead.envelope.error_message
        assert dead.envelope.id == f"{sim.broker.topic_id('orders')}/0/0"
