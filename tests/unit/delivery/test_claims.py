"""What is remembered of ids: conflicts, replays, and ids of the sender's own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from deliveries import INBOX, OUTBOX, Database, inserting, kinds, made

from redrive import Record, Retry, RetryPolicy, field, header, optional
from redrive.testing import Simulation

# Ids belong to their source topic


def two_topics(**refunds: Any) -> tuple[Any, list[tuple[str, str]]]:
    app = made("idempotent", RetryPolicy("5m"))
    handled: list[tuple[str, str]] = []

    def handle(record: Any, ctx: Any) -> None:
        handled.append((record.topic, ctx.idempotency_key))
        if record.topic == "refunds" and ctx.attempt == 1:
            raise Retry("not yet")

    app.handler("orders", decode=json.loads, id=field("id"))(handle)
    app.handler("refunds", decode=json.loads, id=field("id"), **refunds)(handle)
    return app, handled


def test_the_same_id_in_two_topics_is_two_records() -> None:
    app, handled = two_topics()
    with Simulation(app, db=Database()) as sim:
        for topic, event in (("orders", {"id": 7}), ("refunds", {"id": 7, "of": "orders"})):
            sim.send(topic, event)
            sim.send(topic, event)
            sim.run()
        sim.run_until_empty()
        assert handled == [
            ("orders", "shop/orders/7"),
            ("refunds", "shop/refunds/7"),
            ("refunds", "shop/refunds/7"),
        ]
        assert sorted(map(str, sim.store.rows)) == ["7 of orders", "7 of refunds"]
        assert sim.dead == []


def test_topics_share_ids_where_that_is_asked_for() -> None:
    app, handled = two_topics(id_scope="orders")
    with Simulation(app, db=Database()) as sim:
        sim.send("orders", {"id": 7})
        sim.send("refunds", {"id": 7})
        sim.send("refunds", {"id": 8})
        sim.send("refunds", {"id": 7, "other": True})
        sim.run_until_empty()
        assert handled == [("orders", "shop/orders/7"), *[("refunds", "shop/orders/8")] * 2]
        assert [dead.reason for dead in sim.dead] == ["conflict"]
        assert sorted(map(str, sim.store.rows)) == ["7 of orders", "8 of orders"]


def test_what_is_buried_in_one_topic_is_forgotten_there_only() -> None:
    app, _ = two_topics()
    app = app.with_handlers(
        lambda handler: handler.replace(retry=RetryPolicy("5m", max_duration="1m"))
    )
    with Simulation(app, db=Database()) as sim:
        sim.send("orders", {"id": 7})
        sim.send("refunds", {"id": 7})
        sim.run_until_empty()
        assert len(sim.dead) == 1
        assert [*map(str, sim.store.rows)] == ["7 of orders"]


def test_a_record_whose_handler_is_gone_is_forgotten_where_it_was_known() -> None:
    app, _ = two_topics(id_scope="money")
    without = made("idempotent", RetryPolicy("5m"))
    without.handler("orders")(print)
    with Simulation(app, db=Database()) as sim:
        sim.send("refunds", {"id": 7})
        sim.run()
        assert [*map(str, sim.store.rows)] == ["7 of money"]
        again = {"db": Database(), "clock": sim.clock, "broker": sim.broker, "store": sim.store}
        with Simulation(without, **again) as later:
            later.run_until_empty()
            assert [dead.reason for dead in later.dead] == ["no-handler"]
            assert not later.store.rows


# Records that bring no id


@pytest.mark.parametrize("delivery", INBOX)
def test_a_misspelt_field_is_reported_and_not_replaced_by_the_place(delivery: str) -> None:
    _, sim, db = inserting(delivery, RetryPolicy("5m"), decode=json.loads, id=field("order.typo"))
    sim.send("orders", {"order": {"id": 7}})
    sim.run_until_empty()
    assert db.rows == []
    [dead] = sim.dead
    assert dead.reason == "no-id"
    message = dead.envelope.error_message or ""
    assert "orders[0]@0 has no id: field('order.typo') returned nothing for it" in message
    assert "write id=optional(...)" in message


@pytest.mark.parametrize("delivery", INBOX)
def test_an_optional_id_and_a_tombstone_fall_back_to_the_place(delivery: str) -> None:
    for chosen, value in ((optional(field("id")), "{}"), (field("id"), None)):
        _, sim, db = inserting(delivery, RetryPolicy("5m"), decode=json.loads, id=chosen)
        sim.send("orders", value)
        sim.run_until_empty()
        assert len(db.rows) == 1
        [known] = sim.store.rows
        assert known.id.endswith("/0/0")


# Conflicts and replays


def test_what_counts_as_the_payload_can_be_chosen() -> None:
    _, sim, db = inserting(
        "idempotent", decode=json.loads, id=field("id"), payload=lambda record: record.data
    )
    sim.send("orders", '{"id": 7, "to": "Ann"}')
    sim.send("orders", '{"to": "Ann", "id": 7}')
    sim.send("orders", '{"to": "Bob", "id": 7}')
    sim.run_until_empty()
    assert len(db.rows) == 1
    assert [dead.record.value for dead in sim.dead] == [b'{"to": "Bob", "id": 7}']


@pytest.mark.parametrize("chosen", [b"same", "same", 7, None, [1, 2]])
def test_a_payload_is_text_bytes_or_what_json_holds(chosen: Any) -> None:
    _, sim, db = inserting("idempotent", id=header("id"), payload=lambda _: chosen)
    for value in ("one", "two"):
        sim.send("orders", value, headers=(("id", b"7"),))
    sim.run_until_empty()
    assert (db.rows, sim.dead) == ([b"one"], [])


class Panic(BaseException):
    """What is no Exception, as those of Rust's panics."""


@pytest.mark.parametrize("error", [Panic("broken"), SystemExit("broken"), OSError("broken")])
@pytest.mark.parametrize("option", ["id", "payload"])
def test_a_function_that_raises_anything_fails_its_record_alone(
    option: str, error: BaseException
) -> None:
    def ask(record: Record) -> str:
        if record.value == b"bad":
            raise error
        return str(record.value)

    _, sim, db = inserting("idempotent", **{"id": header("id"), option: ask})
    for name, value in (("1", "bad"), ("2", "good")):
        sim.send("orders", value, headers=(("id", name.encode()),))
    sim.run_until_empty()
    assert db.rows == [b"good"]
    [dead] = sim.dead
    assert dead.reason == "no-id"
    assert "broken" in (dead.envelope.error_message or "")


def test_a_payload_that_cannot_be_compared_fails_its_record_alone() -> None:
    _, sim, db = inserting(
        "idempotent", id=header("id"), payload=lambda r: {r} if r.value == b"bad" else r.value
    )
    for name, value in (("1", "bad"), ("2", "good")):
        sim.send("orders", value, headers=(("id", name.encode()),))
    sim.run_until_empty()
    assert db.rows == [b"good"]
    [dead] = sim.dead
    assert "returned a set that cannot be compared" in (dead.envelope.error_message or "")


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
