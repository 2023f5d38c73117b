"""The deliveries with a database, in virtual time: one effect, not zero and not two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from deliveries import Database, inserting, kinds, made

from redrive import App, Backoff, Bury, GiveBack, InPlace, Retry, RetryPolicy, header
from redrive.guarantees import GUARANTEES, WITH_DATABASE
from redrive.testing import Simulation

# One effect


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_a_record_that_fails_is_parked_and_succeeds_later_has_one_effect(delivery: str) -> None:
    _, sim, db = inserting(delivery, RetryPolicy("5m 5m"), fails=(1, 2))
    sim.send("orders", "one")
    sim.run_until_empty()
    assert [each.after for each in sim.attempts] == ["0s", "5m", "10m"]
    assert db.rows == [b"one"]
    assert [record.value for record in sim.sent("told")] == [b"one"]
    assert not sim.dead


@pytest.mark.parametrize("delivery", WITH_DATABASE)
@pytest.mark.parametrize("fails", [(), (1,), (1, 2)])
def test_a_crash_after_the_hop_and_before_the_commit_has_one_effect_with_an_inbox(
    delivery: str, fails: tuple[int, ...]
) -> None:
    """The first try always fails; its hop is written, and then the process dies."""
    _, sim, db = inserting(delivery, RetryPolicy("5m 5m"), fails=(1, *(n + 1 for n in fails)))
    commit = sim.store.carry_out

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    sim.store.carry_out = die  # type: ignore[method-assign]  # -- the crash
    sim.send("orders", "one")
    with pytest.raises(KeyboardInterrupt):
        sim.run()
    db.rows.clear()  # a database that died with its transaction
    sim.store.carry_out = commit  # type: ignore[method-assign]  # -- the crash is over
    sim.crash()
    sim.run_until_empty()
    assert set(db.rows) == {b"one"}
    if GUARANTEES[delivery].inbox:
        assert db.rows == [b"one"]
        assert len(sim.sent("told")) == 1
        assert "duplicate" in kinds(sim)
        numbers = [each.attempt for each in sim.attempts[1:]]
        assert numbers == [*range(1, len(fails) + 2)]  # each once, though hops were written twice
    assert not sim.dead


def test_the_same_id_three_times_has_one_effect_and_one_outbound_record() -> None:
    for delivery, effects in (("idempotent", 1), ("idempotent+outbox", 1), ("outbox", 3)):
        _, sim, db = inserting(delivery, id=header("id"))
        for _ in range(3):
            sim.send("orders", "one", headers=(("id", b"7"),))
        sim.run()
        assert (len(db.rows), len(sim.sent("told"))) == (effects, effects), delivery
        assert kinds(sim).count("duplicate") == 3 - effects
        assert sim.lag == 0


def test_the_same_id_later_is_a_duplicate_too() -> None:
    _, sim, db = inserting("idempotent", id=header("id"))
    for _ in range(3):
        sim.send("orders", "one", headers=(("id", b"7"),))
        sim.advance("1h")
    assert db.rows == [b"one"]
    assert kinds(sim) == ["duplicate", "duplicate"]


@pytest.mark.parametrize("batch", [None, 500])
def test_a_lot_with_duplicates_inside_it_and_from_before(batch: int | None) -> None:
    app = made("idempotent", ordering="partition")
    db = Database()

    @app.handler("orders", id=header("id"), batch=batch)
    def insert(records, ctx):
        for record in records if batch else [records]:
            ctx.db.insert(record.value)

    def send(names: Sequence[int]) -> None:
        for name in names:
            sim.send("orders", str(name), headers=(("id", str(name).encode()),))

    with Simulation(app, db=db) as sim:
        send(range(100))
        sim.run()
        db.rows.clear()
        send([*range(400), *range(200, 300)])  # 100 of them from before, 100 twice
        sim.run()
        assert sorted(map(int, db.rows)) == list(range(100, 400))
        assert kinds(sim).count("duplicate") == 200
        assert sim.lag == 0


def test_two_apps_have_one_effect_each() -> None:
    db = Database()
    first = made("idempotent")
    second = App("mail", delivery="idempotent")
    for app in (first, second):
        app.handler("orders", id=header("id"))(lambda record, ctx: ctx.db.insert(record.value))
    with Simulation(first, db=db) as sim:
        beside = Simulation(second, db=db, clock=sim.clock, broker=sim.broker)
        for _ in range(2):
            sim.send("orders", "one", headers=(("id", b"7"),))
        sim.run()
        beside.run()
        assert db.rows == [b"one", b"one"]


def test_a_record_without_an_id_has_that_of_its_place() -> None:
    _, sim, db = inserting("idempotent")
    sim.send("orders", "one")
    sim.send("orders", "one")
    sim.run()
    assert len(db.rows) == 2
    known = [name.id.rsplit("/", 2)[1:] for name in sim.store.rows]
    assert known == [["0", "0"], ["0", "1"]]


def test_a_record_whose_id_cannot_be_had_is_buried_and_the_others_count() -> None:
    app = made("idempotent", RetryPolicy("5m"))
    db = Database()

    @app.handler("orders", decode=json.loads, id=lambda record: record.data["id"])
    def insert(record, ctx):
        ctx.db.insert(record.data["id"])

    with Simulation(app, db=db) as sim:
        sim.send("orders", {"id": 1})
        sim.send("orders", {})
        sim.send("orders", {"id": 2})
        sim.run()
        assert db.rows == [1, 2]
        assert [dead.reason for dead in sim.dead] == ["no-id"]


# One failing record never takes the others with it


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_a_failing_record_takes_nobody_with_it(delivery: str) -> None:
    app = made(delivery, RetryPolicy("5m"), ordering="partition")
    db = Database()

    @app.handler("orders")
    def insert(record, ctx):
        ctx.db.insert(record.value)
        ctx.send("told", record.value)
        if record.value == b"bad":
            raise ValueError("bad")

    with Simulation(app, db=db) as sim:
        for value in ("1", "bad", "2", "3"):
            sim.send("orders", value)
        sim.run()
        assert db.rows == [b"1", b"2", b"3"]
        assert [record.value for record in sim.sent("told")] == [b"1", b"2", b"3"]
        assert [kept.record.value for kept in sim.parked] == [b"bad"]


@pytest.mark.parametrize("delivery", [*WITH_DATABASE, "transaction"])
def test_failing_between_two_outbound_records_sends_both_or_none(delivery: str) -> None:
    app = made(delivery, RetryPolicy("5m"))
    sent_at = []

    @app.handler("orders")
    def send_two(record, ctx):
        ctx.send("told", "first")
        if ctx.attempt == 1:
            raise Retry("between the two")
        ctx.send("told", "second")
        sent_at.append(ctx.attempt)

    with Simulation(app) as sim:
        sim.send("orders", "one")
        sim.run()
        assert sim.sent("told") == []
        sim.run_until_empty()
        assert [record.value for record in sim.sent("told")] == [b"first", b"second"]


def test_a_batch_that_raises_is_undone_and_done_one_by_one() -> None:
    app = made("idempotent", RetryPolicy("5m"))
    db = Database()

    @app.handler("orders", batch=10)
    def insert(records, ctx):
        for record in records:
            ctx.db.insert(record.value)
            if record.value == b"bad":
                raise ValueError("bad")

    with Simulation(app, db=db) as sim:
        for value in ("1", "bad", "2"):
            sim.send("orders", value)
        sim.run()
        assert db.rows == [b"1", b"2"]
        assert [kept.record.value for kept in sim.parked] == [b"bad"]


def test_an_async_handler_that_takes_too_long_is_undone() -> None:
    app = made("idempotent", RetryPolicy("5m"))
    db = Database()

    @app.handler("orders", timeout="10ms")
    async def insert(record, ctx):
        ctx.db.insert(record.value)
        if ctx.attempt == 1:
            await asyncio.Event().wait()

    with Simulation(app, db=db) as sim:
        sim.send("orders", "one")
        sim.run()
        assert db.rows == []
        assert [kept.envelope.error_type for kept in sim.parked] == [
            "redrive.errors.HandlerTimeout"
        ]
        sim.run_until_empty()
        assert db.rows == [b"one"]


# In place, given back, recovered


@pytest.mark.parametrize("first", [InPlace(3, Backoff("1s")), GiveBack(3, Backoff("1s"))])
def test_tries_in_place_and_after_giving_back_have_one_effect(first: Any) -> None:
    _, sim, db = inserting("idempotent", RetryPolicy(first=first), fails=(1, 2))
    sim.send("orders", "one", key="k")
    sim.send("orders", "two", key="k")
    sim.run()
    assert sim.store.rows == {}  # as if nobody had seen them
    sim.run_until_empty()
    assert db.rows == [b"one", b"two"]
    assert [each.tries for each in sim.attempts] == [1, 2, 3, 1]


@pytest.mark.parametrize("first", [InPlace(3, Backoff("1s")), GiveBack(3, Backoff("1s"))])
def test_nobody_overtakes_one_that_waits_when_units_are_of_one_record(
    first: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are where handlers take long."""
    for module in ("unit", "units"):
        monkeypatch.setattr(f"redrive.delivery.{module}.UNIT_SECONDS", -1.0)
    _, sim, db = inserting("idempotent", RetryPolicy(first=first), fails=(1, 2))
    for value in ("one", "two", "three"):
        sim.send("orders", value, key="k")
    sim.run()
    sim.run_until_empty()
    assert db.rows == [b"one", b"two", b"three"]


def test_a_recovery_works_in_the_same_transaction_as_the_dead_letter() -> None:
    app = made("idempotent")
    db = Database()
    calls = []

    @app.handler("orders")
    def reject(record, ctx):
        ctx.db.insert("handled")
        raise Bury("never")

    @app.recover
    def note(record, error, ctx):
        ctx.db.insert("recovered")
        ctx.send("told", "recovered")
        calls.append(None)
        if len(calls) == 1:
            raise ValueError("not now")

    with Simulation(app, db=db) as sim:
        sim.send("orders", "one")
        sim.run_until_empty()
        assert db.rows == ["recovered"]
        assert len(sim.sent("told")) == 1
        assert [dead.reason for dead in sim.dead] == ["rejected"]
