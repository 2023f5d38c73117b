"""What a record that was just read is to an app: its own, another's, fresh, or broken."""

from __future__ import annotations

import pytest

from redrive import App, RetryPolicy
from redrive.envelope import Envelope, parse
from redrive.record import Write
from redrive.testing import Simulation
from redrive.testing.virtual_clock import START

USER = (("id", b"\x00\xff"), ("id", None), ("redrive-mine", b"x"))


def app_named(name, topic="orders", retry=None, *, fails=True, was=None):
    app = App(name, was=was)

    @app.handler(topic, retry=retry or RetryPolicy("5m"))
    def handle(record, ctx):
        if fails:
            raise RuntimeError("no")

    return app


def beside(sim, app):
    return Simulation(app, broker=sim.broker, clock=sim.clock)


def envelope(**changes):
    known = {
        "app": "items",
        "id": "7",
        "origin_topic": "orders",
        "origin_partition": 0,
        "origin_offset": 17,
        "first_received": START,
        "attempt": 2,
        "due": START,
    }
    return Envelope(**{**known, **changes})


def test_what_another_app_wrote_back_to_a_shared_topic_is_skipped():
    back = RetryPolicy("5m", redeliver="origin")
    items, audit = app_named("items", retry=back), app_named("audit", fails=False)
    with Simulation(items) as sim, beside(sim, audit) as other:
        sim.send("orders", b"v")
        sim.run_until_empty()
        assert len(sim.broker.records("orders")) == 2
        other.run_until_empty()
        assert (len(sim.attempts), len(other.attempts)) == (2, 1)
        assert [(each.kind, each.reason) for each in other.outcomes] == [
            ("skip", "for the app items")
        ]
        assert other.lag == 0


def test_what_an_app_wrote_back_under_its_old_name_is_its_own():
    """It was on its way in the source topic when the app was renamed: nobody else would run it."""
    headers = envelope(app="bills").headers(USER)
    with Simulation(app_named("invoices", fails=False, was="bills")) as sim:
        sim.send("orders", b"v", headers=headers)
        sim.run_until_empty()
        assert [each.attempt for each in sim.attempts] == [2]


def test_two_apps_on_one_topic_have_their_own_delay_and_dead_topics():
    with Simulation(app_named("items")) as sim, beside(sim, app_named("audit")) as audit:
        sim.send("orders", b"v")
        sim.run_until_empty()
        audit.run_until_empty()
        for app, expected in ((sim, "items"), (audit, "audit")):
            assert len(app.attempts) == 2
            assert [dead.envelope.app for dead in app.dead] == [expected]


@pytest.mark.parametrize("app", ["items", "other"])
def test_headers_passed_on_from_another_topics_record_do_not_make_it_skipped(app):
    headers = envelope(app=app, origin_topic="elsewhere", attempt=9).headers(USER)
    with Simulation(app_named("items")) as sim:
        sim.send("orders", b"v", headers=headers)
        sim.run_until_empty()
        assert [each.attempt for each in sim.attempts] == [1, 2]
        [dead] = sim.dead
        assert dead.record.headers == USER
        assert (dead.envelope.origin_topic, dead.envelope.app) == ("orders", "items")
        assert dead.envelope.id != "7"


@pytest.mark.parametrize(
    ("topic", "headers", "named"),
    [
        ("items.retry.5m", (), "redrive-app is missing"),
        ("items.retry.5m", envelope(attempt=0).headers(()), "redrive-attempt is '0'"),
        ("items.retry.5m", envelope(id="").headers(()), "redrive-id is empty"),
        ("orders", envelope(due=-1).headers(()), "redrive-due is '-1'"),
    ],
)
def test_a_broken_envelope_goes_to_the_dead_topic_with_its_bytes_intact(topic, headers, named):
    with Simulation(app_named("items")) as sim:
        sim.broker.publish([Write(topic, b"\xffk", b"\x00v", (*USER, *headers))])
        sim.send("orders", b"good")
        sim.run_until_empty()
        broken = next(dead for dead in sim.dead if dead.reason == "broken-envelope")
        assert (broken.record.key, broken.record.value) == (b"\xffk", b"\x00v")
        assert broken.record.headers == USER
        assert broken.envelope.error_type == "redrive.errors.EnvelopeError"
        assert named in broken.envelope.error_message
        assert broken.envelope.origin_topic == topic
        assert {each.record.value for each in sim.attempts} == {b"good"}
        assert (sim.lag, sim.parked) == (0, [])


def test_a_parked_record_whose_handler_is_gone_is_buried_with_that_reason():
    with Simulation(app_named("items", "orders")) as before:
        before.send("orders", b"v", key="k", headers=USER)
        before.run()
        with beside(before, app_named("items", "payments")) as after:
            after.run_until_empty()
            [dead] = after.dead
            assert (dead.reason, dead.record.topic) == ("no-handler", "orders")
            assert (dead.record.key, dead.record.value) == (b"k", b"v")
            assert dead.record.headers == USER
            assert (dead.envelope.attempt, dead.envelope.error_message) == (2, "no")
            assert (after.attempts, after.parked) == ([], [])


def test_a_record_brought_from_a_renamed_apps_delay_topic_is_this_apps_own():
    retry = RetryPolicy("5m", redeliver="origin")
    with Simulation(app_named("items", retry=retry, fails=False)) as sim:
        headers = envelope(app="old-name").headers(USER)
        sim.broker.publish([Write("items.retry.5m", b"k", b"v", headers)])
        sim.run_until_empty()
        assert [each.attempt for each in sim.attempts] == [2]
        [written] = sim.sent("orders")
        assert parse(written.headers).app == "items"


def test_a_record_is_never_run_before_the_brokers_clock_says_so():
    with Simulation(app_named("items", fails=False)) as sim:
        early = envelope(due=START - 1_000_000)  # by a writer whose clock was behind
        sim.broker.publish([Write("items.retry.5m", None, b"v", early.headers(()))])
        sim.advance("4m59s")
        assert sim.attempts == []
        sim.run_until_empty()
        assert [each.after for each in sim.attempts] == ["5m"]


def test_one_writers_fast_clock_does_not_hold_up_the_records_behind():
    with Simulation(app_named("items", fails=False)) as sim:
        far = envelope(due=START + 3_600_000)
        sim.broker.publish(
            [
                Write("items.retry.5m", None, b"far", far.headers(())),
                Write("items.retry.5m", None, b"near", envelope(due=START + 300_000).headers(())),
            ]
        )
        sim.advance("10m")
        assert [parked.record.value for parked in sim.parked] == [b"far"]
        sim.run_until_empty()
        assert [(each.record.value, each.after) for each in sim.attempts] == [
            (b"near", "5m"),
            (b"far", "1h"),
        ]


def test_a_recreated_topic_does_not_repeat_ids():
    with Simulation(app_named("items", retry=RetryPolicy())) as sim:
        sim.send("orders", b"v")
        sim.run()
        sim.broker.delete("orders")
        sim.send("orders", b"v")
        with beside(sim, app_named("items", retry=RetryPolicy())) as again:
            again.run()
            one, other = again.dead
            assert one.record.place == other.record.place == "orders[0]@0"
            assert one.envelope.id != other.envelope.id
