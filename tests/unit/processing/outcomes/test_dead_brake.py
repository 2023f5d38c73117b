"""A run that would bury most of its records ends instead."""

from __future__ import annotations

import pytest

from redrive import App, Bury, ConfigurationError, RetryPolicy
from redrive.errors import TooManyDeadError
from redrive.testing import Simulation


def app_burying(bad, **options):
    """An app that buries records whose number is such a one."""
    app = App("shop", **{"stop_on_dead": 0.5, **options})

    @app.handler("orders")
    def handle(record, ctx):
        if bad(int(record.value)):
            raise Bury("cannot be read")

    return app


def send(sim, count):
    for number in range(count):
        sim.send("orders", f"{number}", key=f"{number}")


@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
def test_a_broken_deploy_ends_before_it_has_emptied_the_topic(delivery):
    with Simulation(app_burying(lambda _: True, delivery=delivery)) as sim:
        send(sim, 1000)
        with pytest.raises(TooManyDeadError, match="20 of the last 20 records would be buried"):
            sim.run()
        assert len(sim.dead) < 20


def test_what_was_not_buried_is_handled_by_the_next_run():
    with Simulation(app_burying(lambda _: True)) as sim:
        send(sim, 1000)
        with pytest.raises(TooManyDeadError):
            sim.run()
        mended = app_burying(lambda _: False)
        with Simulation(mended, broker=sim.broker, clock=sim.clock) as again:
            again.run()
            assert again.lag == 0
            assert len(again.attempts) + len(again.dead) >= 1000


@pytest.mark.parametrize("share", [0.5, 0.6])
def test_fewer_bad_ones_are_buried_as_usual(share):
    with Simulation(app_burying(lambda number: number % 3 == 0, stop_on_dead=share)) as sim:
        send(sim, 600)
        sim.run()
        assert len(sim.dead) == 200


def test_a_few_bad_ones_at_the_start_are_no_broken_deploy():
    with Simulation(app_burying(lambda number: number < 19)) as sim:
        send(sim, 200)
        sim.run()
        assert len(sim.dead) == 19


def test_records_that_wait_for_another_attempt_are_not_dead():
    app = App("shop", stop_on_dead=0.5, retry=RetryPolicy("1h"))

    @app.handler("orders")
    def handle(record, ctx):
        if int(record.value) % 3:
            raise RuntimeError("later")
        raise Bury("never")

    with Simulation(app) as sim:
        send(sim, 300)
        sim.run()
        assert (len(sim.dead), len(sim.parked)) == (100, 200)


def test_what_went_well_long_ago_does_not_hide_it():
    broken = []
    with Simulation(app_burying(lambda _: bool(broken))) as sim:
        send(sim, 1000)
        sim.run()
        sim.advance("12s")
        broken.append(True)
        send(sim, 1000)
        with pytest.raises(TooManyDeadError):
            sim.run()


def test_nobody_has_it_who_did_not_ask():
    with Simulation(app_burying(lambda _: True, stop_on_dead=None)) as sim:
        send(sim, 100)
        sim.run()
        assert len(sim.dead) == 100


@pytest.mark.parametrize("share", [0, 1.5, True, "half"])
def test_a_share_is_one(share):
    with pytest.raises(ConfigurationError, match=r"stop_on_dead is .*a share of the records"):
        app_burying(lambda _: True, stop_on_dead=share).check()
