"""The deliveries with a database, in virtual time: one effect, not zero and not two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from redrive import App, Backoff, Bury, GiveBack, InPlace, Retry, RetryPolicy, field, header
from redrive.errors import ConfigurationError, PublishError
from redrive.guarantees import GUARANTEES, WITH_DATABASE
from redrive.record import Write
from redrive.testing import Simulation

INBOX = tuple(word for word, each in GUARANTEES.items() if each.inbox)
OUTBOX = tuple(word for word, each in GUARANTEES.items() if each.outbox)


class Database:
    """What handlers do, with transactions: the inner ones are savepoints."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def insert(self, row: Any) -> None:
        self.rows.append(row)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = list(self.rows)
        try:
            yield
        except BaseException:
            self.rows[:] = before
            raise


def made(delivery: str, policy: RetryPolicy | None = None, **options: Any) -> App:
    return App("shop", delivery=delivery, retry=policy, **options)  # type: ignore[arg-type]  # -- one of the five words


def inserting(
    delivery: str,
    policy: RetryPolicy | None = None,
    *,
    fails: Sequence[int] = (),
    **options: Any,
) -> tuple[App, Simulation, Database]:
    """An app that inserts each record's value and sends it on; calls of these numbers fail."""
    app = made(delivery, policy)
    db = Database()
    calls: list[None] = []

    @app.handler("orders", **options)
    def insert(record, ctx):
        ctx.db.insert(record.value)
        ctx.send("told", record.value, key=record.key)
        calls.append(None)
        if len(calls) in fails:
            raise Retry("not now")

    return app, Simulation(app, db=db), db


def kinds(sim: Simulation) -> list[str]:
    return [outcome.kind for outcome in sim.outcomes]


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
    assert [name.rsplit("/", 2)[1:] for name in sim.store.rows] == [["0", "0"], ["0", "1"]]


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


@pytest.mark.parametrize("delivery", WITH_DATABASE)
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
    import asyncio

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
    from dataclasses import replace

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


# Outages and refusals


class Refusing:
    """Refuses writes as long as it is told to."""

    def __init__(self, sim: Simulation, *, outage: bool, value: bytes | None = None) -> None:
        self.refuses = True
        self._publish = sim.broker.publish
        self._outage = outage
        self._value = value
        sim.broker.publish = self  # type: ignore[method-assign,assignment]  # -- a fault

    def __call__(self, writes: Sequence[Write]) -> None:
        if self.refuses and any(self._value in (None, write.value) for write in writes):
            error = PublishError("no")
            error.outage = self._outage
            raise error
        self._publish(writes)


def test_while_the_broker_is_away_records_wait_and_nothing_counts_against_them(caplog) -> None:
    _, sim, db = inserting("idempotent", RetryPolicy("5m"))
    sim.send("orders", "one", key="a")
    sim.send("orders", "two", key="b")
    fault = Refusing(sim, outage=True)
    sim.advance("1m")
    assert (db.rows, sim.lag, sim.parked, sim.dead) == ([], 2, [], [])
    assert len(sim.attempts) < 20
    fault.refuses = False
    sim.advance("10s")
    assert sorted(db.rows) == [b"one", b"two"]
    assert {each.tries for each in sim.attempts} == {each.attempt for each in sim.attempts} == {1}
    told = [record.message for record in caplog.records if record.name == "redrive.delivery"]
    assert len(told) == 2
    assert told[0].startswith("nothing can be committed: no")
    assert told[1].startswith("work is committed again")


def test_a_failure_in_a_unit_that_is_undone_does_not_count(caplog) -> None:
    app = made("idempotent", RetryPolicy(first=InPlace(3, Backoff("1s"))), ordering="partition")

    @app.handler("orders")
    def send(record, ctx):
        ctx.send("told", record.value)
        if record.value == b"bad":
            raise ValueError("bad")

    with Simulation(app) as sim:
        fault = Refusing(sim, outage=True, value=b"good")
        fault.refuses = False
        sim.send("orders", "good")
        sim.send("orders", "bad")
        fault.refuses = True
        sim.advance("1m")
        fault.refuses = False
        sim.run_until_empty()
        tries = [each.tries for each in sim.attempts if each.record.value == b"bad"]
        assert tries[:-2] == [1] * (len(tries) - 2)
        assert tries[-2:] == [2, 3]
        assert len(tries) > 4
        assert [dead.record.value for dead in sim.dead] == [b"bad"]


def test_a_refused_write_holds_its_own_record_and_those_behind_it_only() -> None:
    _, sim, db = inserting("idempotent", RetryPolicy("5m"))
    for key, value in (("a", "1"), ("b", "bad"), ("b", "behind"), ("c", "2")):
        sim.send("orders", value, key=key)
    fault = Refusing(sim, outage=False, value=b"bad")
    sim.advance("1m")
    assert sorted(db.rows) == [b"1", b"2"]
    assert sim.lag == 2
    assert sim.parked == sim.dead == []
    fault.refuses = False
    sim.advance("30s")
    assert db.rows[2:] == [b"bad", b"behind"]


# What cannot be


def test_manual_acks_are_refused_with_the_reason() -> None:
    for delivery in WITH_DATABASE:
        app = made(delivery)
        app.handler("orders", ack="manual")(lambda record, ctx: None)
        with pytest.raises(ConfigurationError, match="committed when the handler returns"):
            app.check()


def test_a_sync_handler_with_a_time_out_is_refused_with_the_reason() -> None:
    app = made("idempotent")
    app.handler("orders", timeout="1s")(lambda record, ctx: None)
    with pytest.raises(ConfigurationError, match="would stay open"):
        app.check()


def test_the_connection_is_the_handlers_only_while_it_runs() -> None:
    app = made("idempotent")
    kept = []
    app.handler("orders")(lambda record, ctx: kept.append(ctx))
    with Simulation(app, db=Database()) as sim:
        sim.send("orders", "one")
        sim.run()
    with pytest.raises(Exception, match="after the record's outcome"):
        _ = kept[0].db


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
