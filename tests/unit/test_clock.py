"""The machine's clock is set back while something waits: it waits no longer for that."""

from __future__ import annotations

import time

import pytest
from deliveries import inserting

from redrive import App, Backoff, Bury, GiveBack, InPlace, RetryPolicy
from redrive.clock import WallClock, steady
from redrive.delivery.trouble import Trouble
from redrive.guarantees import Delivery
from redrive.testing import Simulation, VirtualClock

HOUR = 3_600_000
A_SECOND = Backoff("1s", factor=1, jitter=0)


def set_back(sim: Simulation) -> None:
    sim.clock.set(sim.clock.now() - HOUR)


@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
@pytest.mark.parametrize("first", [InPlace(3, A_SECOND), GiveBack(3, A_SECOND)])
def test_a_try_comes_when_its_wait_is_over(first: InPlace | GiveBack, delivery: Delivery) -> None:
    if delivery == "idempotent":
        _, sim, _ = inserting(delivery, RetryPolicy(first=first), fails=(1, 2))
    else:
        app = App("shop", retry=RetryPolicy(first=first))
        app.handler("orders")(lambda record, ctx: 1 / 0)
        sim = Simulation(app)
    with sim:
        sim.send("orders", "one")
        sim.run()
        for tries in (1, 2):
            set_back(sim)
            sim.advance("999ms")
            assert len(sim.attempts) == tries
            sim.advance("1ms")
            assert len(sim.attempts) == tries + 1


def test_so_does_a_recovery() -> None:
    app, calls = App("shop"), []

    @app.handler("orders")
    def handle(record, ctx):
        raise Bury("never")

    @app.recover("orders")
    def recover(record, error, ctx):
        calls.append(record)
        raise OSError("not now")

    with Simulation(app) as sim:
        sim.send("orders", "one")
        sim.advance("0s")
        set_back(sim)
        sim.advance("1s")
        assert len(calls) == 2


def test_and_the_time_out_of_a_manual_acknowledgement() -> None:
    app = App("shop")
    app.handler("orders", ack="manual", timeout="1m")(lambda record, ctx: None)
    with Simulation(app) as sim:
        sim.send("orders", "one")
        sim.run()
        set_back(sim)
        sim.advance("59s")
        assert sim.dead == []
        sim.advance("1s")
        assert len(sim.dead) == 1


def test_and_the_next_try_of_a_write_that_was_refused() -> None:
    app = App("shop")

    @app.handler("orders")
    def handle(record, ctx):
        ctx.send("told", record.value)

    with Simulation(app) as sim:
        sim.broker.create("told")
        sim.broker.refuse("told", times=1)
        sim.send("orders", "one")
        sim.run()
        set_back(sim)
        sim.advance("1s")
        assert [record.value for record in sim.sent("told")] == [b"one"]
        assert len(sim.attempts) == 1


def test_and_what_everybody_waits_for_while_the_database_is_away() -> None:
    clock = VirtualClock()
    trouble = Trouble(clock)
    trouble.begins(OSError("away"))
    assert trouble.wait_until() is not None
    clock.set(clock.now() - HOUR)
    clock.advance("1s")
    assert trouble.wait_until() is None


def test_a_parked_record_is_due_by_the_clock_which_others_have_too() -> None:
    app = App("shop", retry=RetryPolicy("5m"))
    app.handler("orders")(lambda record, ctx: 1 / 0)
    with Simulation(app) as sim:
        sim.send("orders", "one")
        sim.run()
        set_back(sim)
        sim.advance("1h4m59s")
        assert len(sim.attempts) == 1
        sim.advance("1s")
        assert len(sim.attempts) == 2


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_the_machines_clock_knows_by_how_much_it_was_set(
    by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, now = WallClock(), time.time_ns
    before, was_set = steady(clock), clock.was_set()
    monkeypatch.setattr(time, "time_ns", lambda: now() + by * 1_000_000)
    assert abs(clock.was_set() - was_set - by) < 1000
    assert 0 <= steady(clock) - before < HOUR / 2
    monkeypatch.undo()
    assert abs(clock.was_set() - was_set) < 1000


def test_small_corrections_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, now = WallClock(), time.time_ns
    was_set = clock.was_set()
    monkeypatch.setattr(time, "time_ns", lambda: now() + 500_000_000)
    assert clock.was_set() == was_set
