"""Units of work side by side in one process: on threads, and on an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sides import effects, waits_for_a_rival

from redrive import App, header


def shop(**options: Any) -> App:
    return App("shop", delivery="idempotent", **options)


def handle(app: App, *, is_async: bool, during: Callable[[], None] = lambda: None) -> None:
    insert = "insert into effect (value) values (%s)"

    def handler(record, ctx):
        ctx.db.execute(insert, [record.value.decode()])
        during()

    async def async_handler(record, ctx):
        await ctx.db.execute(insert, [record.value.decode()])

    app.handler("orders", id=header("id"))(async_handler if is_async else handler)


def test_the_same_id_under_two_keys_has_one_effect_and_hangs_nobody(process, connection) -> None:
    app = shop(concurrency=2)
    first = threading.Event()

    def until_the_other_waits() -> None:
        first.set()
        waits_for_a_rival(connection)

    handle(app, is_async=False, during=until_the_other_waits)
    made = process(app)
    made.offer(("1", "a"), ("1", "b"))
    made.wait_until_done()
    assert first.is_set()
    assert effects(connection) == ["1"]
    assert made.kinds == {"duplicate": 1}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("connections", [1, 3])
def test_many_units_share_few_connections(
    process, connection, is_async: bool, connections: int
) -> None:
    app = shop(concurrency=16, database_connections=connections)
    handle(app, is_async=is_async)
    made = process(app)
    names = [f"{number:03}" for number in range(300)]
    # Each id twice, under keys of their own: rivals in one process.
    made.offer(*[(name, f"first {name}") for name in names], *[(name, name) for name in names])
    made.wait_until_done()
    assert effects(connection) == names
    assert made.kinds == {"duplicate": len(names)}
    [(sessions,)] = connection.execute(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and application_name = 'redrive shop'"
    ).fetchall()
    assert 1 <= sessions <= connections


def test_the_next_record_of_a_key_sees_what_the_one_before_it_has_committed(
    process, connection, database
) -> None:
    import psycopg

    app = shop(concurrency=8)
    seen: list[tuple[int, int]] = []

    @app.handler("orders", id=header("id"))
    def look(record, ctx):
        with psycopg.connect(database) as other:
            query = "select count(*) from effect where value like %s"
            [(committed,)] = other.execute(query, [f"{record.key.decode()}%"]).fetchall()
            [(all_of_them,)] = ctx.db.execute(query, [f"{record.key.decode()}%"]).fetchall()
        seen.append((int(record.value.decode()[1:]), all_of_them))
        assert committed <= all_of_them
        ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])

    made = process(app)
    made.offer(*[(f"{key}{number}", key) for number in range(8) for key in "abcd"])
    made.wait_until_done()
    assert sorted(seen) == [(number, number) for number in range(8) for _ in "abcd"]
