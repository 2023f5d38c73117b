"""Parked records whose handler this version does not have: another version may have it."""

from __future__ import annotations

import pytest

from redrive import App, Retry, RetryPolicy
from redrive.engines.database import inbox_ttl
from redrive.envelope import parse
from redrive.errors import ConfigurationError
from redrive.processing.outcomes.causes import Tally
from redrive.testing import Simulation


def newer(*, delays="3s", fails=1, recover=None, **options):
    """The version that handles orders, which fail at first."""
    app = App("shop", retry=RetryPolicy(delays), **options)
    app.handler("payments")(lambda record, ctx: None)

    @app.handler("orders")
    def order(record, ctx):
        if ctx.attempt <= fails:
            raise Retry("not yet")

    if recover is not None:
        app.recover(recover)
    return app


def older(delays="3s", **options):
    """The version before, which has payments only."""
    app = App("shop", retry=RetryPolicy(delays), **options)
    app.handler("payments")(lambda record, ctx: None)
    return app


def beside(sim, app):
    return Simulation(app, broker=sim.broker, clock=sim.clock)


def moves(sim):
    return [(each.kind, each.reason) for each in sim.outcomes]


def parked_by(app):
    sim = Simulation(app)
    sim.send("orders", b"v", key="k", headers=(("user", b"kept"),))
    sim.run()
    return sim


def test_it_moves_on_while_its_handler_is_missing_and_runs_when_that_is_back():
    with parked_by(newer()) as first:
        with beside(first, older()) as rolled_back:
            rolled_back.advance("10m")
            assert set(moves(rolled_back)) == {("hop", "no-handler")}
            assert (rolled_back.dead, rolled_back.lag) == ([], 0)
        with beside(first, newer()) as again:
            again.run_until_empty()
            [attempt] = again.attempts
            assert (attempt.attempt, attempt.record.key, attempt.record.value) == (2, b"k", b"v")
            assert attempt.record.headers == (("user", b"kept"),)
            assert again.dead == []


def test_it_stays_where_it_is_until_it_is_due():
    with parked_by(newer(delays="1h")) as first, beside(first, older("1m")) as rolled_back:
        rolled_back.advance("59m59s")
        assert moves(rolled_back) == []
        rolled_back.advance("1s")
        assert moves(rolled_back) == [("hop", "no-handler")]


@pytest.mark.parametrize("patience", ["0s", "1h", "1d"])
def test_it_is_buried_once_the_patience_is_over(patience):
    with parked_by(newer(delays="1m")) as first:
        started = first.clock.now()
        with beside(first, older("1m", unhandled=patience)) as rolled_back:
            rolled_back.run_until_empty()
            [dead] = rolled_back.dead
            assert (dead.reason, dead.envelope.attempt) == ("no-handler", 2)
            assert dead.envelope.error_message == "not yet"
            waited = first.clock.now() - started
            expected = {"0s": 0, "1h": 3_660_000, "1d": 86_460_000}
            assert waited == expected[patience]


def test_a_day_by_default_and_none_is_for_ever():
    assert older().unhandled == 86_400_000
    patient = older("1h", unhandled=None)
    with parked_by(newer(delays="1h")) as first, beside(first, patient) as rolled_back:
        rolled_back.advance("30d")
        assert (rolled_back.dead, len(rolled_back.parked)) == ([], 1)


def test_the_time_without_a_handler_counts_from_the_last_version_that_had_one():
    with parked_by(newer(delays="1h 1h", fails=2)) as first:
        for app, time in ((older("1h"), "23h"), (first.app, "1h"), (older("1h"), "23h")):
            with beside(first, app) as sim:
                sim.advance(time)
                assert (sim.dead, len(sim.parked)) == ([], 1)
        with beside(first, newer(delays="1h 1h", fails=2)) as last:
            last.run_until_empty()
            assert [each.attempt for each in last.attempts] == [3]
            assert last.dead == []


@pytest.mark.parametrize(
    ("delays", "chosen"),
    [("5s 30s", "30s"), ("5s 1m 1h", "1m"), ("30s 5m 1h", "5m"), ("", "3s")],
)
def test_it_waits_about_a_minute_at_a_time(delays, chosen):
    with parked_by(newer()) as first, beside(first, older(delays)) as rolled_back:
        rolled_back.advance("3s")
        [hop] = rolled_back.sent(f"shop.retry.{chosen}")[-1:]
        envelope = parse(hop.headers)
        assert envelope.unhandled_since == first.clock.now()
        assert (envelope.attempt, envelope.error_message) == (2, "not yet")


def test_what_was_asked_for_by_the_handler_is_kept():
    app = App("shop", retry=RetryPolicy("1m"))

    @app.handler("orders")
    def order(record, ctx):
        if ctx.attempt == 1:
            raise Retry("later", after="1h")

    with parked_by(app) as first:
        with beside(first, older("1m")) as rolled_back:
            rolled_back.advance("10m")
        with beside(first, app) as again:
            again.run_until_empty()
            assert [each.attempt for each in again.attempts] == [2]
            assert first.now == "1h"


def test_one_that_waits_for_its_recovery_waits_for_that():
    recovered = []

    def broken(record, error, ctx):
        raise RuntimeError("the recovery has no disk")

    with parked_by(newer(fails=9, recover=broken)) as first:
        first.advance("3s")  # its attempts are used up, and the recovery fails
        assert first.parked[0].envelope.dead_reason == "exhausted"
        with beside(first, older()) as rolled_back:
            rolled_back.advance("1h")
            assert rolled_back.dead == []
        with beside(
            first, newer(recover=lambda record, *_: recovered.append(record.value))
        ) as again:
            again.run_until_empty()
            assert recovered == [b"v"]
            assert [dead.reason for dead in again.dead] == ["exhausted"]
            assert [each.recovery for each in again.attempts] == [True]


def test_it_is_counted_by_its_cause_and_no_other_hop_is():
    with parked_by(newer()) as first, beside(first, older()) as rolled_back:
        rolled_back.advance("1m")
        tally = Tally(rolled_back.app)
        for outcome in rolled_back.outcomes:
            tally.outcome(outcome)
        [seen] = tally.take()
        assert seen.count == len(rolled_back.outcomes)
        assert (seen.cause.kind, seen.cause.topic) == ("hop", "orders")
        assert seen.message == "waits for a version that handles orders"


@pytest.mark.parametrize(("patience", "days"), [("0s", 9), ("1d", 9), ("10d", 18)])
def test_ids_are_remembered_for_as_long_as_it_waits(patience, days):
    settings = {"payments": {"retention.ms": "604800000"}}
    app = older("1d", unhandled=patience)
    assert inbox_ttl(app, settings) == days * 86_400_000


def test_a_patience_that_is_no_duration_is_a_mistake():
    with pytest.raises(ConfigurationError, match="unhandled"):
        older(unhandled="a while").check()


def test_a_renamed_app_without_that_delay_leaves_it_in_the_topic_that_is_there():
    with parked_by(newer()) as first:
        renamed = App("store", was="shop")
        renamed.handler("payments")(lambda record, ctx: None)
        with beside(first, renamed) as later:
            later.advance("1m")
            assert set(moves(later)) == {("hop", "no-handler")}
            written = {write.topic for each in later.outcomes for write in each.writes}
            assert written == {"shop.retry.3s"}
