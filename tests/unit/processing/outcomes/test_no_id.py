"""Records whose id cannot be had: who has to fail for it, and what is said."""

from __future__ import annotations

import json
import logging

import pytest

from redrive import App, RetryPolicy
from redrive.ids import field
from redrive.testing import Simulation


def shop(handle) -> App:
    app = App("shop", retry=RetryPolicy("5s"), error_traces=True)
    app.handler("orders", id=field("idd"), decode=json.loads)(handle)
    return app


def test_a_log_line_fails_no_record(caplog):
    def handle(record, ctx):
        ctx.log.info("a bill")

    with caplog.at_level(logging.INFO, "redrive"), Simulation(shop(handle)) as sim:
        sim.send("orders", b'{"id": 7}')
        sim.run()
        assert not sim.dead
    (line,) = [each for each in caplog.records if each.message == "a bill"]
    assert (line.topic, line.offset) == ("orders", 0)  # type: ignore[attr-defined]  # -- of `extra`


def test_a_handler_that_fails_for_its_own_reason_is_named_beside_the_missing_id():
    def handle(record, ctx):
        raise KeyError("amount")

    with Simulation(shop(handle)) as sim:
        sim.send("orders", b'{"id": 7}')
        sim.run()
        (dead,) = sim.dead
    assert dead.reason == "no-id"
    assert "KeyError: 'amount'" in dead.envelope.error_message
    assert "has no id: field('idd') returned nothing" in dead.envelope.error_message


@pytest.mark.parametrize("asks", [True, False])
def test_the_trace_begins_at_the_users_own_frames(asks):
    def handle(record, ctx):
        if asks:
            _ = ctx.idempotency_key
        raise KeyError("amount")

    with Simulation(shop(handle)) as sim:
        sim.send("orders", b'{"id": 7}')
        sim.run()
        (dead,) = sim.dead
    assert "in handle" in dead.envelope.error_trace.splitlines()[1]


@pytest.mark.parametrize("ending", ["bury", "discard", "recovery"])
def test_a_parked_record_for_which_the_next_version_has_no_id_is_buried_at_once(ending):
    """Whatever its policy says of those that fail: it would be the same each time."""
    before = App("shop")

    @before.handler("orders", retry=RetryPolicy("5s 5s"))
    def park(record, ctx):
        raise KeyError("amount")

    on_exhausted = "discard" if ending == "discard" else "bury"
    policy = RetryPolicy("5s 5s", on_exhausted=on_exhausted)
    after, calls = App("shop", delivery="idempotent"), []
    after.handler("orders", id=field("idd"), decode=json.loads, retry=policy)(
        lambda record, ctx: calls.append("handler")
    )
    if ending == "recovery":
        after.recover(lambda record, error, ctx: calls.append("recovery"))

    with Simulation(before) as sim:
        sim.send("orders", b'{"id": 7}')
        sim.run()
        with Simulation(after, broker=sim.broker, clock=sim.clock) as new:
            new.run_until_empty()
            (dead,) = new.dead
    assert (dead.reason, dead.record.value, calls) == ("no-id", b'{"id": 7}', [])
    assert (dead.envelope.attempt, dead.envelope.error_type) == (2, "ValueError")
