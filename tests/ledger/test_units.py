"""Units of work on a real PostgreSQL: rivals, failures and what handlers may not do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from sides import PATIENCE, Make, effects, inserting, join, known, shop, waits_for_a_rival

from redrive import Retry, RetryPolicy, header
from redrive.errors import PublishError
from redrive.guarantees import GUARANTEES, WITH_DATABASE
from redrive.ledger.inbox import Inbox
from redrive.ledger.names import lock_class
from redrive.tuning import EXPIRE_EVERY

INBOX = tuple(word for word, each in GUARANTEES.items() if each.inbox)


class Held:
    """A handler that tells when it runs, and waits until it may go on."""

    def __init__(self) -> None:
        self.runs = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, record: Any, ctx: Any) -> None:
        self.runs.set()
        assert self.may_go_on.wait(PATIENCE)


# One effect


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_a_record_that_fails_is_parked_and_succeeds_has_one_effect(
    make: Make, connection, delivery: str
) -> None:
    def fail_twice(record: Any, ctx: Any) -> None:
        if ctx.attempt < 3:
            raise Retry("not yet")

    app = inserting(fail_twice, id=header("id"))(shop(delivery, retry=RetryPolicy("5m 5m")))
    side = make(app)
    side.send(("1", "one"))
    side.run()
    if GUARANTEES[delivery].inbox:
        assert known(connection) == {"1": ("parked", 2)}
    side.run_until_empty()
    assert effects(connection) == ["one"]
    rows = connection.execute("select convert_from(payload, 'UTF8') from redrive.outbox").fetchall()
    assert len(rows) + len(side.values("told")) == 1
    assert len(rows) == GUARANTEES[delivery].outbox


def test_the_same_id_three_times_with_and_without_inbox(make: Make, connection) -> None:
    for delivery, count in (("idempotent", 1), ("idempotent+outbox", 1), ("outbox", 3)):
        connection.execute("truncate effect, redrive.inbox, redrive.outbox")
        connection.commit()
        side = make(inserting(id=header("id"))(shop(delivery)))
        side.send(*[("1", "one")] * 3)
        side.run()
        [(rows,)] = connection.execute("select count(*) from redrive.outbox").fetchall()
        connection.commit()
        assert effects(connection) == ["one"] * count
        assert rows + len(side.values("told")) == count
        assert side.kinds == ["duplicate"] * (3 - count)


@pytest.mark.parametrize("batch", [None, 500])
def test_a_lot_of_500_with_100_duplicates_inside_it_and_100_from_before(
    make: Make, connection, batch: int | None
) -> None:
    app = inserting(id=header("id"), batch=batch)(shop(ordering="partition"))
    side = make(app)
    side.send(*[(f"{n:03}", f"{n:03}") for n in range(100)])
    side.run()
    connection.execute("truncate effect")
    connection.commit()
    again = [*range(400), *range(200, 300)]
    side.send(*[(f"{n:03}", f"{n:03}") for n in again])
    side.run()
    assert effects(connection) == [f"{n:03}" for n in range(100, 400)]
    assert side.kinds == ["duplicate"] * 200


# Rivals


@pytest.mark.parametrize("delivery", INBOX)
def test_the_same_id_at_two_processes_at_once_has_one_effect(
    make: Make, connection, delivery: str
) -> None:
    held = Held()
    owner = make(inserting(held, id=header("id"))(shop(delivery)))
    rival = make(inserting(id=header("id"))(shop(delivery)))
    owner.send(("1", "one"))
    rival.send(("1", "one"))
    first = owner.run_beside()
    assert held.runs.wait(PATIENCE)
    second = rival.run_beside()
    waits_for_a_rival(connection)
    held.may_go_on.set()
    join(first, second)
    assert effects(connection) == ["one"]
    assert (owner.kinds, rival.kinds) == ([], ["duplicate"])


def test_a_rival_of_an_owner_that_rolls_back_handles_the_record_and_nobody_else_does(
    make: Make, connection
) -> None:
    held = Held()
    owner = make(inserting(held, id=header("id"))(shop()))
    rival = make(inserting(id=header("id"))(shop()))
    publish = owner.broker.publish
    owner.send(("1", "one"))
    rival.send(("1", "one"))

    def away(writes: Any) -> None:
        error = PublishError("no broker is there")
        error.kind = "outage"
        raise error

    owner.broker.publish = away  # type: ignore[method-assign]  # -- a fault
    first = threading.Thread(target=owner.run)
    first.start()
    assert held.runs.wait(PATIENCE)
    second = rival.run_beside()
    waits_for_a_rival(connection)
    held.may_go_on.set()
    join(first, second)
    assert effects(connection) == ["one"]
    assert (owner.kinds, rival.kinds) == ([], [])
    owner.broker.publish = publish  # type: ignore[method-assign]  # -- it is back
    owner.run_until_empty()
    assert effects(connection) == ["one"]
    assert owner.kinds == ["duplicate"]


def test_a_rival_that_waits_too_long_lets_the_others_go_first_and_is_not_blamed(
    make: Make, connection, monkeypatch
) -> None:
    monkeypatch.setattr("redrive.ledger.pool.LOCK_TIMEOUT", 50)
    held = Held()
    owner = make(inserting(held, id=header("id"))(shop()))
    rival = make(inserting(id=header("id"))(shop(retry=RetryPolicy("5m"))))
    owner.send(("2", "two"))
    first = owner.run_beside()
    assert held.runs.wait(PATIENCE)
    rival.send(("1", "one"), ("2", "two"), ("3", "three"))
    rival.run()
    assert effects(connection) == ["one", "three"]
    held.may_go_on.set()
    join(first)
    rival.run_until_empty()
    assert effects(connection) == ["one", "three", "two"]
    assert rival.kinds == ["duplicate"]


def test_overlapping_lots_in_opposite_order_at_two_processes(database, connection) -> None:
    connection.execute("create table effect (value text not null)")
    connection.commit()
    command = [sys.executable, str(Path(__file__).with_name("rival.py")), database]
    rivals = [
        subprocess.Popen([*command, order], stdout=subprocess.PIPE, text=True)
        for order in ("up", "down")
    ]
    told = [json.loads(rival.communicate(timeout=PATIENCE)[0]) for rival in rivals]
    values = [f"{n:04}" for n in range(1000)]
    assert effects(connection) == values
    assert [each["errors"] for each in told] == [[], []]
    assert sum(each["duplicate"] for each in told) == len(values)
    assert sum(each["done"] for each in told) == len(values)


def test_a_deadlock_in_the_handlers_own_statements_counts_against_nobody(
    make: Make, connection, database
) -> None:
    connection.execute("create table stock (item text primary key, left_over integer)")
    connection.execute("insert into stock values ('a', 0), ('b', 0)")
    connection.commit()
    both = threading.Barrier(2)
    tries: list[str] = []

    def take(first: str, second: str) -> Callable[[Any, Any], None]:
        def during(record: Any, ctx: Any) -> None:
            tries.append(first)
            update = "update stock set left_over = left_over + 1 where item = %s"
            ctx.db.execute(update, [first])
            if tries.count(first) == 1:
                both.wait(PATIENCE)
            ctx.db.execute(update, [second])

        return during

    one = make(inserting(take("a", "b"), id=header("id"))(shop()))
    other = make(inserting(take("b", "a"), id=header("id"))(shop()))
    one.send(("1", "one"))
    other.send(("2", "two"))
    join(one.run_beside(), other.run_beside())
    assert effects(connection) == ["one", "two"]
    assert connection.execute("select left_over from stock").fetchall() == [(2,), (2,)]
    assert len(tries) > 2  # one of them was the victim
    assert one.dead == other.dead == []


# The database goes away


def test_a_database_that_goes_away_buries_nobody(make: Make, connection, redrive_stack) -> None:
    calls: list[bytes] = []

    def during(record: Any, ctx: Any) -> None:
        calls.append(record.value)
        if len(calls) == 2:
            redrive_stack.postgres.kill()  # in the middle of a unit

    side = make(inserting(during, id=header("id"))(shop(retry=RetryPolicy("5m"))))
    side.send(("1", "one"), ("2", "two"), ("3", "three"))
    try:
        for _ in range(5):
            side.run()
            side.clock.advance("1m")
        assert side.outcomes == []
        assert len(calls) == 2  # nobody is called while there is nothing to write to
    finally:
        redrive_stack.postgres.start()
    side.run_until_empty()
    assert side.outcomes == []
    with psycopg.connect(connection.info.dsn, password=connection.info.password) as fresh:
        assert effects(fresh) == ["one", "three", "two"]


def test_units_take_ids_in_one_order(make: Make, monkeypatch) -> None:
    taken: list[list[str]] = []
    claim = Inbox.claim

    def noted(self: Inbox, wire: Any, claims: Any) -> Any:
        taken.append([each.id.id for each in claims])
        return claim(self, wire, claims)

    monkeypatch.setattr(Inbox, "claim", noted)
    side = make(inserting(id=header("id"))(shop(ordering="partition")))
    side.send(("c", "3"), ("a", "1"), ("b", "2"))
    side.run()
    assert taken == [["a", "b", "c"]]


# Growing old


def test_old_ids_are_forgotten_by_whoever_works_and_by_one_at_a_time(
    make: Make, connection, other, monkeypatch
) -> None:
    side, ahead = make(inserting(id=header("id"))(shop(inbox_ttl="1h"))), [0.0]
    monkeypatch.setattr("redrive.delivery.units.monotonic", lambda: monotonic() + ahead[0])
    side.send(("old", "old"))
    side.run()
    connection.execute("update redrive.inbox set at = now() - interval '2 hours'")
    connection.commit()

    def work(name: str) -> None:
        ahead[0] += EXPIRE_EVERY
        side.send((name, name))
        side.run()

    key = lock_class("expire", "redrive", "shop")
    other.execute("select pg_advisory_lock(%s, 0)", [key])
    work("new")
    assert known(connection) == {"old": ("done", 1), "new": ("done", 1)}
    other.execute("select pg_advisory_unlock(%s, 0)", [key])
    work("newer")
    assert known(connection) == {"new": ("done", 1), "newer": ("done", 1)}


def test_a_record_that_is_retried_does_not_grow_old(make: Make, connection) -> None:
    def fail_once(record: Any, ctx: Any) -> None:
        if ctx.attempt == 1:
            raise Retry("not yet")

    side = make(inserting(fail_once, id=header("id"))(shop(retry=RetryPolicy("5m"))))
    side.send(("1", "one"))
    side.run()
    connection.execute("update redrive.inbox set at = now() - interval '2 hours'")
    connection.commit()
    side.run_until_empty()
    [(age,)] = connection.execute("select now() - at < interval '1 hour' from redrive.inbox")
    assert age
