"""What waits: per delay how many, when the next is due, and why."""

from __future__ import annotations

from redrive import App, RetryPolicy
from redrive.dead.parked import Parked, parked
from redrive.record import Record
from redrive.testing import Simulation


def test_what_waits_by_delay_and_cause():
    app = App("shop", retry=RetryPolicy("5m 1h"))

    @app.handler("orders")
    def handle(record, ctx):
        raise KeyError("x") if record.value == b"a" else OSError("y")

    with Simulation(app) as sim:
        for value in ("a", "a", "b"):
            sim.send("orders", value)
        sim.run()
        began = sim.clock.now()
        short, long = parked(app, sim.broker, sim.broker.progress("shop"))
        assert (short.topic, short.delay, short.count) == ("shop.retry.5m", 300_000, 3)
        assert short.next_due == began + 300_000
        assert sorted((error, n) for (_, error), n in short.groups.items()) == [
            ("KeyError", 2),
            ("OSError", 1),
        ]
        assert (long.count, long.next_due) == (0, None)
        sim.advance("5m")
        short, long = parked(app, sim.broker, sim.broker.progress("shop"))
        assert (short.count, long.count) == (0, 3)
        assert long.as_data()["groups"][0]["count"] == 2


def test_errors_that_are_called_after_a_masked_field_do_not_tell_it():
    app = App("shop", retry=RetryPolicy("5m"), masked=["card"])

    @app.handler("orders")
    def handle(record, ctx):
        raise type("No_tok_wonder", (Exception,), {})

    with Simulation(app) as sim:
        sim.send("orders", '{"card": "tok_wonder"}')
        sim.run()
        [found] = parked(app, sim.broker, sim.broker.progress("shop"))
    [(_, error)] = found.groups
    assert error.endswith("No_***")


def test_causes_that_are_told_apart_are_counted_to_the_end(monkeypatch):
    monkeypatch.setattr("redrive.dead.parked.DEAD_GROUPS", 2)
    found = Parked("shop.retry.5m", 300_000)
    for error in ("A", "B", "C", "A", "D"):
        headers = (("redrive-error-type", error.encode()),)
        found.add(Record("shop.retry.5m", 0, 0, None, b"", headers, 0))
    assert found.groups == {("-", "A"): 2, ("-", "B"): 1, ("(others)", "-"): 2}


def test_a_replayed_letter_and_one_without_a_handler_are_called_what_they_are():
    found = Parked("shop.retry.5m", 300_000)
    replayed = ("redrive-operation", b"replay-1")
    waits = ("redrive-unhandled-since", b"7")
    failed = (("redrive-error-type", b"KeyError"), ("redrive-error-group", b"abc"))
    for headers in ((replayed,), (replayed, waits), (replayed, *failed), (*failed, waits), ()):
        found.add(Record("shop.retry.5m", 0, 0, None, b"", headers, 0))
    assert [*found.groups] == [
        ("(replayed)", "replay-1"),
        ("(no handler)", "replay-1"),
        ("abc", "KeyError"),
        ("(no handler)", "KeyError"),
        ("-", "-"),
    ]
