"""Outages and refusals in units of work, and what cannot be combined with them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from deliveries import Database, inserting, made

from redrive import Backoff, InPlace, RetryPolicy
from redrive.errors import ConfigurationError, PublishError
from redrive.guarantees import WITH_DATABASE
from redrive.record import Write
from redrive.testing import Simulation

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
            error.kind = "outage" if self._outage else "unknown"
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
    assert told[1].startswith("commits work again")


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


def test_a_message_that_is_refused_is_not_taken_for_an_equal_one() -> None:
    """It may differ in its headers alone: who sent the other is not buried."""
    app = made("idempotent", RetryPolicy("5m"), ordering="unordered")

    @app.handler("orders")
    def send(record, ctx):
        ctx.send("told", b"equal", headers={"number": b"%d" % record.offset})

    with Simulation(app, db=Database()) as sim:
        sim.broker.create("told")
        publish = sim.broker.publish

        def refuse_odd_ones(writes: Sequence[Write]) -> None:
            numbers = [dict(write.headers).get("number") for write in writes]
            odd = [number is not None and int(number) % 2 == 1 for number in numbers]
            publish([write for write, is_odd in zip(writes, odd, strict=True) if not is_odd])
            if any(odd):
                error = PublishError("too large")
                error.refused = [write for write, is_odd in zip(writes, odd, strict=True) if is_odd]
                error.reasons = [PublishError("too large") for _ in error.refused]
                for each in error.reasons:
                    each.topic, each.kind = "told", "message"
                raise error

        sim.broker.publish = refuse_odd_ones  # type: ignore[method-assign]  # -- a fault
        for _ in range(8):
            sim.send("orders", "equal")
        sim.advance("1m")
        assert [each.reason for each in sim.dead] == ["refused-write"] * 4
        assert {each.envelope.origin_offset for each in sim.dead} == {1, 3, 5, 7}
        assert sim.lag == 0


def test_a_mistake_of_ours_over_one_record_holds_that_one_only(caplog) -> None:
    _, sim, db = inserting("idempotent", RetryPolicy("5m"))
    publish = sim.broker.publish
    mistaken = [True]

    def mistake(writes: Sequence[Write]) -> None:
        if mistaken and any(write.value == b"bad" for write in writes):
            raise KeyError("bad")
        publish(writes)

    for key, value in (("a", "1"), ("b", "bad"), ("b", "behind"), ("c", "2")):
        sim.send("orders", value, key=key)
    sim.broker.publish = mistake  # type: ignore[method-assign]  # -- a fault
    sim.advance("1m")
    assert sorted(db.rows) == [b"1", b"2"]
    assert sim.parked == sim.dead == []
    # Not by its text: Spark, once imported, writes traces in a form of its own.
    assert "KeyError('bad')" in {repr(each.exc_info[1]) for each in caplog.records if each.exc_info}
    mistaken.clear()
    sim.advance("30s")
    assert db.rows[2:] == [b"bad", b"behind"]


def test_nobody_is_called_again_while_a_topic_takes_nothing(caplog) -> None:
    _, sim, db = inserting("idempotent", RetryPolicy("5m"))
    sim.broker.create("told")
    sim.broker.refuse("told")
    for number in range(40):
        sim.send("orders", str(number), key=str(number % 7))
    sim.advance("10m")
    assert (db.rows, sim.lag, sim.parked, sim.dead) == ([], 40, [], [])
    calls = [each.record.value for each in sim.attempts]
    assert len(calls) == len(set(calls)) <= 40
    (told,) = [each.message for each in caplog.records if each.name == "redrive.delivery"]
    assert "a write to told was refused (TOPIC_AUTHORIZATION_FAILED)" in told
    sim.broker.accept("told")
    sim.advance("1m")
    assert sorted(db.rows) == sorted(b"%d" % number for number in range(40))
    assert len(sim.sent("told")) == 40
    # Once more where the unit had to be undone, and for no other reason.
    assert len(sim.attempts) == 40 + len(calls)
    assert caplog.messages[-1] == "writes to told are accepted again"


def test_what_an_outbox_could_not_publish_is_not_lost() -> None:
    """It waits in the outbox, as it does for a relay: its unit has ended."""
    _, sim, db = inserting("idempotent+outbox", RetryPolicy("5m"))
    sim.broker.create("told")
    sim.broker.refuse("told")
    sim.send("orders", "1", key="a")
    sim.advance("10m")
    assert (sim.sent("told"), sim.lag, sim.dead, db.rows) == ([], 0, [], [b"1"])
    sim.broker.accept("told")
    sim.advance("1s")
    assert [each.value for each in sim.sent("told")] == db.rows == [b"1"]


def test_a_message_that_its_topic_does_not_take_ends_its_record_and_nobody_elses() -> None:
    _, sim, db = inserting("idempotent", RetryPolicy("5m"))
    sim.broker.create("told", config={"max.message.bytes": "2000"})
    for number, value in enumerate(("1", "x" * 5000, "2")):
        sim.send("orders", value, key=str(number))
    sim.advance("1s")
    assert (sim.lag, sorted(db.rows)) == (0, [b"1", b"2"])
    assert [dead.reason for dead in sim.dead] == ["refused-write"]
    assert [len(each.record.value or b"") for each in sim.attempts].count(5000) == 1


@pytest.mark.parametrize("bad", [0, 3], ids=["the first of its unit", "another one"])
def test_nobody_overtakes_those_that_are_tried_again_because_of_it(bad: int) -> None:
    _, sim, db = inserting("idempotent", RetryPolicy("5m"))
    sim.broker.create("told", config={"max.message.bytes": "2000"})
    for number in range(40):
        sim.send("orders", "x" * 5000 if number == bad else str(number), key="a")
    sim.advance("1s")
    assert [int(row) for row in db.rows] == [number for number in range(40) if number != bad]
    assert [dead.reason for dead in sim.dead] == ["refused-write"]


def test_a_failure_whose_dead_letter_is_refused_is_not_another_call() -> None:
    app = made("idempotent", RetryPolicy())

    @app.handler("orders")
    def fail(record, ctx):
        raise ValueError("bad")

    with Simulation(app) as sim:
        sim.broker.refuse("shop.dead")
        sim.send("orders", "1")
        sim.advance("10m")
        assert (sim.lag, sim.dead) == (1, [])
        sim.broker.refuse("shop.dead", error="MSG_SIZE_TOO_LARGE")
        sim.advance("10m")
        sim.broker.accept("shop.dead")
        sim.advance("1m")
        assert (sim.lag, len(sim.dead), len(sim.attempts)) == (0, 1, 1)


# What cannot be


def test_manual_acks_are_refused_with_the_reason() -> None:
    for delivery in WITH_DATABASE:
        app = made(delivery)
        app.handler("orders", ack="manual")(lambda record, ctx: None)
        with pytest.raises(ConfigurationError, match="committed when the handler returns"):
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
