"""What is remembered of ids: conflicts, replays, and ids of the sender's own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from deliveries import INBOX, OUTBOX, Database, inserting, kinds, made

from redrive import Retry, RetryPolicy, field, header
from redrive.testing import Simulation

# Conflicts and replays


@pytest.mark.parametrize("delivery", INBOX)
@pytest.mark.parametrize("apart", [False, True])
def test_the_same_id_with_another_payload_is_a_conflict(delivery: str, apart: bool) -> None:
    _, sim, db = inserting(delivery, RetryPolicy("5m"), id=header("id"))
    for value in ("one", "two"):
        sim.send("orders", value, headers=(("id", b"7"),))
        if apart:
            sim.run()
    sim.run()
    assert db.rows == [b"one"]
    [dead] = sim.dead
    assert dead.reason == "conflict"
    fingerprints = {row.found.fingerprint.hex() for row in sim.store.rows.values()}  # type: ignore[union-attr]  # -- it has a value
    message = dead.envelope.error_message or ""
    assert fingerprints.pop() in message
    assert message.count("fingerprint") == 1
    assert "orders[0]@0 then" in message
    assert "orders[0]@1 now" in message


def test_a_conflict_has_its_recovery_and_is_buried_once() -> None:
    db = Database()
    recovered: list[str] = []
    app = made("idempotent")
    app.handler("orders", id=header("id"))(lambda record, ctx: ctx.db.insert(record.value))
    app.recover(lambda record, error, ctx: recovered.append(str(error)))
    with Simulation(app, db=db) as sim:
        for value in ("one", "two"):
            sim.send("orders", value, headers=(("id", b"7"),))
        sim.run_until_empty()
        assert len(recovered) == 1
        assert [dead.reason for dead in sim.dead] == ["conflict"]
        assert [row.found.state for row in sim.store.rows.values()] == ["done"]


def replayed(sim: Simulation, value: bytes | None = None) -> None:
    """As a replay does: a fresh attempt of the same id."""
    [dead] = sim.dead
    envelope = replace(dead.envelope, attempt=1, dead_reason=None)
    record = dead.record
    sim.send("orders", value or record.value, headers=envelope.headers(record.headers))


@pytest.mark.parametrize("delivery", INBOX)
@pytest.mark.parametrize("edited", [None, b"edited"])
@pytest.mark.parametrize("delays", ["", "5m 5m"])
def test_a_dead_letter_that_failed_is_processed_when_replayed(
    delivery: str, edited: bytes | None, delays: str
) -> None:
    _, sim, db = inserting(delivery, RetryPolicy(delays), fails=(1, 2, 3) if delays else (1,))
    sim.send("orders", "one")
    sim.run_until_empty()
    assert db.rows == []
    replayed(sim, edited)
    sim.run_until_empty()
    assert db.rows == [edited or b"one"]


@pytest.mark.parametrize("delivery", INBOX)
def test_a_dead_letter_whose_first_run_did_complete_is_dropped_when_replayed(delivery: str) -> None:
    """It was written, and then the process died before its end was committed."""
    _, sim, db = inserting(delivery, fails=(1,))
    carry_out = sim.store.carry_out
    sim.store.carry_out = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]  # -- the crash
    sim.send("orders", "one")
    with pytest.raises(KeyboardInterrupt):
        sim.run()
    sim.store.carry_out = carry_out  # type: ignore[method-assign]  # -- the crash is over
    sim.crash()
    sim.run()
    assert db.rows == [b"one"]
    replayed(sim)
    sim.run()
    assert db.rows == [b"one"]
    assert kinds(sim) == ["duplicate"]


def test_a_record_that_expired_while_it_waited_is_processed_when_replayed() -> None:
    """It ends where no handler runs: its id is forgotten all the same."""
    policy = RetryPolicy("5m 30m", redeliver="origin", max_duration="36m")
    _, sim, db = inserting("idempotent", policy, fails=(1, 2))
    sim.send("orders", "one")
    sim.advance("6m")
    [row] = sim.store.rows.values()
    assert (row.found.state, row.found.attempt) == ("parked", 3)
    sim.crash()
    sim.clock.advance("1h")  # nobody was there when it was due
    sim.run_until_empty()
    assert [dead.reason for dead in sim.dead] == ["expired"]
    replayed(sim)
    sim.run_until_empty()
    assert db.rows == [b"one"]


# Ids of the sender's own


@pytest.mark.parametrize("delivery", OUTBOX)
def test_a_second_outbound_record_with_the_same_id_makes_its_record_a_duplicate(
    delivery: str,
) -> None:
    app = made(delivery)
    db = Database()

    @app.handler("orders")
    def send(record, ctx):
        ctx.db.insert(record.value)
        ctx.send("told", record.value, id=record.key)
        ctx.send("also", record.value)

    with Simulation(app, db=db) as sim:
        sim.send("orders", "one", key="a")
        sim.send("orders", "again", key="a")
        sim.send("orders", "other", key="b")
        sim.run()
        assert db.rows == [b"one", b"other"]
        assert [record.header("id") for record in sim.sent("told")] == [b"a", b"b"]
        assert [record.value for record in sim.sent("also")] == [b"one", b"other"]
        assert kinds(sim) == ["duplicate"]


@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent", "transaction"])
def test_an_id_of_the_senders_own_needs_an_outbox(delivery: str) -> None:
    app = made(delivery)
    app.handler("orders")(lambda record, ctx: ctx.send("told", "x", id="7"))
    with Simulation(app) as sim:
        sim.send("orders", "one")
        sim.run()
        [dead] = sim.dead
        assert f"'{delivery}', which has no outbox" in (dead.envelope.error_message or "")


def test_a_record_parked_before_it_could_be_decoded_is_known_by_its_own_id_later() -> None:
    app = made("idempotent", RetryPolicy("5m"))
    db = Database()
    registry = {"down": True}

    def decode(value: bytes) -> Any:
        if registry["down"]:
            raise Retry("the registry is down")
        return json.loads(value)

    @app.handler("orders", decode=decode, id=field("id"))
    def insert(record, ctx):
        ctx.db.insert(record.data["id"])

    with Simulation(app, db=db) as sim:
        sim.send("orders", {"id": "7"})
        sim.run()
        registry["down"] = False
        sim.send("orders", {"id": "7"})
        sim.run_until_empty()
        assert db.rows == ["7"]
