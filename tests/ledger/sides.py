"""Sides: processes of one app, each with a broker in memory, that share one real database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from redrive import App
from redrive.guarantees import GUARANTEES
from redrive.ledger.postgres_store import PostgresStore
from redrive.local.waiting import wait_until
from redrive.processing.outcomes.report import Outcome
from redrive.record import Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.runner import Runner
from redrive.testing.virtual_clock import VirtualClock

PATIENCE = 60.0


class Side:
    """One process of an app. What it calls a partition is its own."""

    def __init__(self, dsn: str, app: App) -> None:
        self.app = app
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        for topic in (*app.handlers, *app.delay_topics, app.dead_topic, "told"):
            late = {"message.timestamp.type": "LogAppendTime"} if topic in app.delay_topics else {}
            self.broker.create(topic, 1, late)
        self.outcomes: list[Outcome] = []
        self._store = PostgresStore(
            dsn, app.name, connections=4, guarantee=GUARANTEES[app.delivery]
        )
        self.runner = Runner(
            app,
            log=self.broker,
            progress=self.broker.progress(app.name),
            publisher=self.broker,
            clock=self.clock,
            store=self._store,
            watch=self.outcomes.append,
        )

    def send(self, *records: tuple[str, str], key: bytes | None = None) -> None:
        """Write records: id and value."""
        topic = next(iter(self.app.handlers))
        self.broker.publish(
            [
                Write(topic, key or name.encode(), value.encode(), (("id", name.encode()),))
                for name, value in records
            ]
        )

    def run(self) -> None:
        self.runner.run()

    def run_until_empty(self) -> None:
        self.run()
        while (due := self.runner.next_due()) is not None:
            self.clock.set(max(due, self.clock.now()))
            self.run()

    def run_beside(self) -> threading.Thread:
        """Run in a thread of its own."""
        thread = threading.Thread(target=self.run_until_empty)
        thread.start()
        return thread

    @property
    def kinds(self) -> list[str]:
        return [outcome.kind for outcome in self.outcomes]

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.broker.records(topic)]

    def hops(self) -> int:
        return sum(len(self.values(topic)) for topic in self.app.delay_topics)

    @property
    def not_allowed(self) -> Exception | None:
        """Why a run would end by now."""
        assert self.runner.units is not None
        return self.runner.units.trouble.not_allowed

    @property
    def dead(self) -> list[bytes | None]:
        return self.values(self.app.dead_topic)

    def close(self) -> None:
        self.runner.close()
        self._store.close()


def waits_for_a_rival(connection: psycopg.Connection[Any], sessions: int = 1) -> None:
    """Wait until that many sessions of this database wait for a lock."""

    def waiting() -> bool:
        row = connection.execute(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
        connection.commit()
        return row is not None and row[0] >= sessions

    assert wait_until(waiting, PATIENCE)


def effects(connection: psycopg.Connection[Any]) -> list[str]:
    """What handlers have inserted, sorted."""
    rows = connection.execute("select value from effect order by value").fetchall()
    connection.commit()
    return [row[0] for row in rows]


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def inserting(
    during: Callable[[Any, Any], None] | None = None, **options: Any
) -> Callable[[App], App]:
    """Gives an app a handler that inserts each record's value and sends it on."""

    def add(app: App) -> App:
        @app.handler("orders", **options)
        def insert(given, ctx):
            records: Sequence[Any] = given if options.get("batch") else [given]
            for record in records:
                ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])
                ctx.send("told", record.value, key=record.key)
                if during is not None:
                    during(record, ctx)

        return app

    return add


Make = Callable[..., Side]
"""Makes sides of one app."""


def shop(delivery: str = "idempotent", **options: Any) -> App:
    return App("shop", delivery=delivery, **options)  # type: ignore[arg-type]  # -- one of the five words


def known(connection: psycopg.Connection[Any]) -> dict[str, tuple[str, int]]:
    rows = connection.execute("select id, state, attempt from redrive.inbox").fetchall()
    connection.commit()
    return {name: (state, attempt) for name, state, attempt in rows}
