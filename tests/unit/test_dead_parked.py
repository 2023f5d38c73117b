"""What waits: per delay how many, when the next is due, and why."""

from __future__ import annotations

from redrive import App, RetryPolicy
from redrive.dead.parked import parked
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
