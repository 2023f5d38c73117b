"""A run that would bury most of its records ends instead."""

from __future__ import annotations

import pytest

from redrive import App, Bury, ConfigurationError, RetryPolicy
from redrive.envelope import Envelope
from redrive.errors import PublishError, TooManyDeadError
from redrive.processing.calls.scope import Scope
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
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


def no_id(record):
    raise KeyError("renamed")


@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
def test_a_deploy_that_finds_no_ids_is_broken(delivery):
    app = App("shop", stop_on_dead=0.5, delivery=delivery)

    @app.handler("orders", id=no_id)
    def handle(record, ctx):
        raise KeyError("renamed")

    with Simulation(app) as sim:
        send(sim, 1000)
        with pytest.raises(TooManyDeadError):
            sim.run_until_empty()
        assert len(sim.dead) < 20


GONE = Envelope(
    app="shop",
    id="1",
    origin_topic="gone",
    origin_partition=0,
    origin_offset=0,
    first_received=0,
)
BROKEN = (("redrive-app", b"shop"), ("redrive-origin-topic", b"orders"))


@pytest.mark.parametrize(
    ("topic", "headers"), [("shop.retry.1m", GONE.headers(())), ("orders", BROKEN)]
)
def test_records_that_end_without_a_call_count_too(topic, headers):
    options = {"retry": RetryPolicy("1m"), "unhandled": "1s"}
    with Simulation(app_burying(lambda _: False, **options)) as sim:
        sim.run()
        for number in range(100):
            sim.send(topic, f"{number}", key=f"{number}", headers=headers)
        with pytest.raises(TooManyDeadError):
            sim.run_until_empty()
        assert len(sim.dead) < 20


def test_records_that_are_discarded_are_not_dead():
    app = App("shop", stop_on_dead=0.5, retry=RetryPolicy(on_exhausted="discard"))

    @app.handler("orders")
    def handle(record, ctx):
        raise KeyError("as ever")

    with Simulation(app) as sim:
        send(sim, 100)
        sim.run_until_empty()
        assert (sim.lag, len(sim.dead)) == (0, 0)


def test_a_refused_write_waits_for_the_end_of_the_run():
    """Whoever delivers asks what becomes of each, and goes on until the run has ended."""
    ended = []
    app = app_burying(lambda _: False)
    scope = Scope(app, {"orders": "id"}, guarded=True)
    scope.on_death = ended.append
    processor = PartitionProcessor(scope, TopicPartition("orders", 0), AckTracker())
    error = PublishError("too large")
    error.kind = "message"
    outcomes = [
        processor.refused((offset, [], Record("orders", 0, offset, b"", b"", ())), error, 0)
        for offset in range(25)
    ]
    assert [each is None for each in outcomes] == [False] * 19 + [True] * 6
    assert [type(each) for each in ended] == [TooManyDeadError]
