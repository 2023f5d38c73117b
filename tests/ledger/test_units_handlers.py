"""Units of work on a real PostgreSQL: what handlers may and may not do in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sides import Make, effects, inserting, known, shop

from redrive import Retry, RetryPolicy, header
from redrive.guarantees import GUARANTEES

INBOX = tuple(word for word, each in GUARANTEES.items() if each.inbox)


def test_a_handler_that_commits_has_failed_and_learns_why(make: Make, connection) -> None:
    app = inserting(lambda record, ctx: ctx.db.commit(), id=header("id"))(shop())
    side = make(app)
    side.send(("1", "one"))
    side.run()
    [outcome] = side.outcomes
    assert outcome.kind == "bury"
    assert "forbidden within a Transaction" in str(outcome.error)
    assert effects(connection) == []
    assert known(connection) == {}


@pytest.mark.parametrize("statement", ["commit", "rollback"])
def test_a_handler_that_ends_the_transaction_by_a_statement_has_failed_and_takes_nobody_along(
    make: Make, connection, statement: str
) -> None:
    def during(record: Any, ctx: Any) -> None:
        if record.value == b"bad":
            ctx.db.execute(statement)

    side = make(inserting(during, id=header("id"))(shop(ordering="partition")))
    side.send(("1", "one"), ("2", "bad"), ("3", "three"))
    side.run()
    [outcome] = side.outcomes
    assert (outcome.kind, outcome.record.value) == ("bury", b"bad")
    assert "ended the transaction of ctx.db" in str(outcome.error)
    assert {"one", "three"} <= {*effects(connection)}
    assert known(connection) == {"1": ("done", 1), "3": ("done", 1)}


def test_a_handler_that_goes_on_after_a_failed_statement_has_failed(make: Make, connection) -> None:
    def during(record: Any, ctx: Any) -> None:
        if record.value == b"bad":
            with pytest.raises(psycopg.errors.UndefinedTable):
                ctx.db.execute("select * from nowhere")

    side = make(inserting(during, id=header("id"))(shop()))
    side.send(("1", "one"), ("2", "bad"), ("3", "three"))
    side.run()
    [outcome] = side.outcomes
    assert "put `with ctx.db.transaction():` around" in str(outcome.error)
    assert effects(connection) == ["one", "three"]


def with_block(db: Any) -> None:
    with db:
        raise Retry("not now")


@pytest.mark.parametrize("ends", [with_block, lambda db: db.close()], ids=["with", "close"])
def test_a_handler_cannot_close_the_connection_under_the_others(
    make: Make, connection, ends: Callable[[Any], None]
) -> None:
    def during(record: Any, ctx: Any) -> None:
        if record.value == b"bad":
            ends(ctx.db)

    side = make(inserting(during, id=header("id"))(shop()))
    side.send(("1", "one"), ("2", "bad"), ("3", "three"))
    side.run()
    [outcome] = side.outcomes
    assert (outcome.kind, outcome.record.value) == ("bury", b"bad")
    assert "use ctx.db as it is" in str(outcome.error)
    assert effects(connection) == ["one", "three"]


def test_an_async_handler_cannot_close_the_connection_either(make: Make, connection) -> None:
    app = shop()

    @app.handler("orders", id=header("id"))
    async def insert(record, ctx):
        await ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])
        if record.value == b"bad":
            async with ctx.db:
                pass
        if record.value == b"worse":
            await ctx.db.close()

    side = make(app)
    side.send(("1", "one"), ("2", "bad"), ("3", "worse"), ("4", "four"))
    side.run()
    assert sorted(str(outcome.record.value) for outcome in side.outcomes) == ["b'bad'", "b'worse'"]
    assert all("ctx.db belongs to redrive" in str(outcome.error) for outcome in side.outcomes)
    assert effects(connection) == ["four", "one"]


def test_what_the_database_does_not_take_of_one_record_fails_that_record_alone(
    make: Make, connection
) -> None:
    connection.execute("alter table redrive.outbox add check (payload <> 'bad')")
    connection.commit()
    side = make(inserting(id=header("id"))(shop("idempotent+outbox")))
    side.send(("1", "one"), ("2", "bad"), ("3", "three"))
    side.run()
    [outcome] = side.outcomes
    assert (outcome.kind, outcome.record.value) == ("bury", b"bad")
    assert "violates check constraint" in str(outcome.error)
    assert effects(connection) == ["one", "three"]
    assert known(connection) == {"1": ("done", 1), "3": ("done", 1)}


def test_a_record_that_loses_the_connection_every_time_waits_alone_and_is_not_blamed(
    make: Make, connection
) -> None:
    """As one does that is idle for longer than the database allows."""
    cured = []

    def during(record: Any, ctx: Any) -> None:
        if record.value == b"bad" and not cured:
            with suppress(psycopg.OperationalError):
                ctx.db.execute("select pg_terminate_backend(pg_backend_pid())")

    side = make(inserting(during, id=header("id"))(shop()))
    side.send(("1", "one"), ("2", "bad"), ("3", "three"))
    for _ in range(10):
        side.run()
        side.clock.set(side.runner.next_due())
    assert effects(connection) == ["one", "three"]
    assert side.outcomes == []
    cured.append(True)
    side.run_until_empty()
    assert effects(connection) == ["bad", "one", "three"]


def test_a_handler_may_have_savepoints_of_its_own(make: Make, connection) -> None:
    def during(record: Any, ctx: Any) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable), ctx.db.transaction():
            ctx.db.execute("select * from nowhere")

    side = make(inserting(during, id=header("id"))(shop()))
    side.send(("1", "one"))
    side.run()
    assert effects(connection) == ["one"]


@pytest.mark.parametrize("name", ["x" * 5000, "zero \0 inside", "1'; drop table effect; --"])
def test_any_id_can_be_remembered(make: Make, connection, name: str) -> None:
    side = make(inserting(id=header("id"))(shop()))
    side.send((name, "one"), (name, "one"))
    side.run()
    assert effects(connection) == ["one"]
    assert side.kinds == ["duplicate"]


def test_async_handlers_have_an_async_connection_in_the_same_transaction(
    make: Make, connection
) -> None:
    app = shop("idempotent+outbox", retry=RetryPolicy("5m"))

    @app.handler("orders", id=header("id"), timeout="10s")
    async def insert(record, ctx):
        await ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])
        ctx.send("told", record.value, id=record.value)
        if record.value == b"bad" and ctx.attempt == 1:
            raise ValueError("bad")

    side = make(app)
    side.send(("1", "one"), ("2", "bad"), ("3", "three"), ("1", "one"))
    side.run()
    assert effects(connection) == ["one", "three"]
    side.run_until_empty()
    assert effects(connection) == ["bad", "one", "three"]
    rows = connection.execute("select id from redrive.outbox order by id").fetchall()
    assert rows == [("bad",), ("one",), ("three",)]
    assert side.kinds.count("duplicate") == 1


def test_an_async_handler_whose_statement_takes_too_long_is_undone_and_the_others_count(
    make: Make, connection
) -> None:
    app = shop(retry=RetryPolicy("5m"), ordering="partition")

    @app.handler("orders", id=header("id"), timeout="200ms")
    async def insert(record, ctx):
        await ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])
        if record.value == b"slow" and ctx.attempt == 1:
            await ctx.db.execute("select pg_sleep(60)")

    side = make(app)
    side.send(("1", "one"), ("2", "slow"), ("3", "three"))
    side.run()
    assert effects(connection) == ["one", "three"]
    side.run_until_empty()
    assert effects(connection) == ["one", "slow", "three"]


def test_an_async_handler_that_cancels_its_task_too_late_undoes_nothing(
    make: Make, connection
) -> None:
    app = shop(retry=RetryPolicy("5m"), ordering="partition")

    @app.handler("orders", id=header("id"))
    async def insert(record, ctx):
        await ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)  # a timer of its own, say

    side = make(app)
    side.send(("1", "one"), ("2", "two"), ("3", "three"))
    side.run()
    assert effects(connection) == ["one", "three", "two"]
    assert side.outcomes == []
