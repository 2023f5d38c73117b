"""Handlers that do not come back, within a unit of work: it is ended, and its policy decides."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL
from sides import PATIENCE, effects

from redrive import App, RetryPolicy, header
from redrive.delivery.store import StoreDownError
from redrive.guarantees import WITH_DATABASE
from redrive.ledger.session import PostgresSession
from redrive.local.waiting import wait_until
from redrive.processing.calls.lots import GivenUpError, Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.work import Assigned, Work
from redrive.record import Record, TopicPartition

INSERT = "insert into effect (value) values (%s)"
FORMS = {"threads": None, "beside": None, "batch": 1}


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """Set: nobody hangs any more."""
    event = threading.Event()
    yield event
    event.set()


def shop(**options: Any) -> App:
    options = {"delivery": "idempotent", "concurrency": 2, "database_connections": 2, **options}
    return App("shop", **options)


def hanging(
    app: App, go: threading.Event, *, form: str = "threads", batch: int | None = None
) -> list[str]:
    """A handler that hangs after it has written; gives whom it was called with."""
    called: list[str] = []

    def each(value: str, db: Any) -> None:
        called.append(value)
        db.execute(INSERT, [value])
        if value.startswith("hangs"):
            assert go.wait(PATIENCE)

    def handle(record, ctx):
        each(record.value.decode(), ctx.db)

    def handle_batch(records, ctx):
        for record in records:
            each(record.value.decode(), ctx.db)

    async def other(record, ctx):
        pass

    batch = batch or FORMS[form]
    app.handler("orders", id=header("id"), timeout="300ms", batch=batch)(
        handle if batch is None else handle_batch
    )
    if form == "beside":
        app.handler("other")(other)
    return called


def open_transactions(connection: psycopg.Connection) -> int:
    [(count,)] = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and application_name = 'redrive shop' and state <> 'idle'"
    ).fetchall()
    connection.commit()
    return int(count)


@pytest.mark.parametrize("case", list(product(FORMS, ["park", "bury"])), ids="-".join)
def test_it_is_given_up_its_transaction_ended_and_its_policy_decides(
    process, connection, go, caplog, case
) -> None:
    form, kind = case
    caplog.set_level(logging.ERROR, "redrive")
    app = shop(retry=RetryPolicy("1s") if kind == "park" else RetryPolicy())
    hanging(app, go, form=form)
    made = process(app)
    # More of them than threads and connections: each has to be replaced.
    made.offer(*[(name, name) for name in ("hangs 1", "1", "hangs 2", "2", "hangs 3")])
    made.wait_until_done()
    assert made.kinds == {kind: 3}
    assert made.hung == 3
    assert effects(connection) == ["1", "2"]
    assert open_transactions(connection) == 0
    states = connection.execute("select state, count(*) from redrive.inbox group by 1 order by 1")
    assert states.fetchall() == ([("done", 2), ("parked", 3)] if kind == "park" else [("done", 2)])
    found = [each.getMessage() for each in caplog.records]
    [told] = [each for each in found if "orders[0]@0" in each]
    assert "its database transaction is ended" in told
    assert "go.wait" in told  # its stack
    go.set()
    names = ("redrive-shop", "redrive-beside")
    made.close()
    assert wait_until(
        lambda: not any(each.name.startswith(names) for each in threading.enumerate()), PATIENCE
    )
    assert effects(connection) == ["1", "2"]


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_of_a_batch_that_hangs_only_the_record_that_hangs_alone_has_failed(
    process, connection, go, delivery
) -> None:
    app = shop(delivery=delivery, retry=RetryPolicy())
    called = hanging(app, go, batch=5)
    made = process(app)
    made.offer(*[(name, "a") for name in ("1", "2", "hangs", "3", "4")])
    made.wait_until_done()
    assert made.kinds == {"bury": 1}
    assert made.hung == 2
    assert called == ["1", "2", "hangs", "1", "2", "hangs", "3", "4"]
    assert effects(connection) == ["1", "2", "3", "4"]
    assert open_transactions(connection) == 0


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_one_that_waits_for_the_database_itself_comes_back_by_it(
    process, connection, delivery
) -> None:
    app = shop(delivery=delivery, retry=RetryPolicy("1s"))
    raised: list[BaseException] = []

    @app.handler("orders", id=header("id"), timeout="300ms")
    def handle(record, ctx):
        try:
            ctx.db.execute("select pg_sleep(3600)")
        except psycopg.Error as error:
            raised.append(error)
            raise

    made = process(app)
    made.offer(("1", "a"))
    made.wait_until_done()
    assert made.kinds == {"park": 1}
    assert wait_until(lambda: bool(raised), PATIENCE)
    assert open_transactions(connection) == 0


def test_those_before_it_in_its_transaction_are_undone_and_run_again(
    process, connection, go
) -> None:
    app = shop(concurrency=1, retry=RetryPolicy("1s"))
    called = hanging(app, go)
    made = process(app)
    made.offer(("1", "a"), ("hangs", "a"), ("2", "a"))
    made.wait_until_done()
    assert made.kinds == {"park": 1}
    assert called == ["1", "hangs", "1", "2"]
    assert effects(connection) == ["1", "2"]


def test_if_the_database_cannot_be_asked_it_is_asked_again(
    process, connection, go, monkeypatch
) -> None:
    app = shop(retry=RetryPolicy())
    called = hanging(app, go)
    break_off = PostgresSession.break_off
    asked: list[PostgresSession] = []

    async def refused_once(self):
        asked.append(self)
        if len(asked) == 1:
            raise StoreDownError("PostgreSQL: away")
        await break_off(self)

    monkeypatch.setattr(PostgresSession, "break_off", refused_once)
    made = process(app)
    made.offer(("hangs", "a"))
    made.wait_until_done()
    assert made.kinds == {"bury": 1}
    assert called == ["hangs"]
    assert len(asked) == 2
    assert effects(connection) == []
    assert open_transactions(connection) == 0


def test_one_that_comes_back_before_its_transaction_is_ended_disturbs_nobody(
    process, connection, go, monkeypatch
) -> None:
    app = shop(database_connections=1, retry=RetryPolicy())
    hanging(app, go)
    break_off = PostgresSession.break_off

    asked: list[PostgresSession] = []

    async def after_it_came_back(self):
        asked.append(self)
        go.set()
        async with self._pool.acquire(is_async=False) as other:  # there is no more than one
            await break_off(self)
            await other.fetch(SQL("select 1"))

    monkeypatch.setattr(PostgresSession, "break_off", after_it_came_back)
    made = process(app)
    made.offer(("hangs", "a"), *[(str(number), str(number)) for number in range(20)])
    made.wait_until_done()
    assert made.kinds == {"bury": 1}
    assert len(asked) == 1
    assert effects(connection) == sorted(str(number) for number in range(20))
    [(sessions,)] = connection.execute(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and application_name = 'redrive shop'"
    ).fetchall()
    assert sessions == 1


@pytest.mark.parametrize(
    "statement", ["set local idle_in_transaction_session_timeout = 100", "commit"]
)
def test_a_transaction_that_has_ended_before_holds_nobody_up(
    process, connection, go, statement
) -> None:
    """By the server, or by a handler that does what it may not."""
    app = shop(retry=RetryPolicy("1s"))

    @app.handler("orders", id=header("id"), timeout="1s")
    def handle(record, ctx):
        ctx.db.execute(statement)
        assert go.wait(PATIENCE)

    made = process(app)
    made.offer(("1", "a"))
    made.wait_until_done()
    assert made.kinds == {"park": 1}
    found = connection.execute("select id, state from redrive.inbox").fetchall()
    assert [state for _, state in found] == ["parked"]
    assert open_transactions(connection) == 0


def test_a_call_comes_back_or_is_given_up_never_both(process, go) -> None:
    app = shop()
    hanging(app, go)
    scope = Scope(app, {})
    assigned = Assigned(TopicPartition("orders", 0))

    def call() -> tuple[Lot, list[Work]]:
        work = Work(assigned, Record("orders"), app.handlers["orders"], 0, 0)
        lot, works = Lot(scope, assigned, [work], []), [work]
        lot.calls_with(works)
        return lot, works

    lot, works = call()
    lot.returned()
    assert not lot.give_up(works)
    lot, works = call()
    assert lot.give_up(works)
    assert not lot.give_up(works)
    with pytest.raises(GivenUpError):
        lot.returned()
